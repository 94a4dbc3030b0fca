package main

// The file worker: the same binary as uid 1000, one call at a time, frames on its own stdin and stdout. Everything
// that opens a path of the agent's happens here. It trusts PID 1 and nothing in the file system: no open may hang
// (O_NONBLOCK, regular files only), links are the kernel's to follow with the agent's own rights.

import (
	"encoding/json"
	"errors"
	"os/signal"
	"runtime/debug"
	"syscall"
)

const fileWorkerMode = "file-worker"

// fileRequest is the payload of FILE_OPEN.
type fileRequest struct {
	Op        string  `json:"op"` // read write list stat mkdir remove
	Path      Text    `json:"path"`
	Offset    int64   `json:"offset"`
	Length    *int64  `json:"length"`
	Size      *int64  `json:"size"`
	SHA256    string  `json:"sha256"`
	Mode      *uint32 `json:"mode"`
	Parents   bool    `json:"parents"`
	Recursive bool    `json:"recursive"`
	Limit     int     `json:"limit"`
	Temp      string  `json:"temp"` // PID 1's choice of the temporary file's name
}

// fileFailure is the payload of FILE_ERROR.
type fileFailure struct {
	Errno   string `json:"errno"`
	Message string `json:"message"`
}

type fileDigest struct {
	Size     int64  `json:"size"`
	SHA256   string `json:"sha256"`
	FileSize int64  `json:"file_size"`
}

type fileWorkerState struct {
	decoder Decoder
	buf     []byte
}

var (
	errAborted = errors.New("aborted")
	errGone    = errors.New("PID 1 is gone")
)

// namedError carries an errno name that is not one of the kernel's for this call.
type namedError struct{ errno, message string }

func (e *namedError) Error() string { return e.message }

func fileWorker() int {
	debug.SetGCPercent(50)
	// The agent shares our uid: it may kill us, but a TERM meant for its own processes must not tear a write.
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE, syscall.SIGXFSZ,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM)
	w := &fileWorkerState{buf: make([]byte, headerSize+chunkSize)}
	for {
		f, err := w.receive()
		if err != nil {
			return 0
		}
		switch f.Type {
		case tPing:
			err = w.send(Frame{Type: tPong, Stream: f.Stream})
		case tFileOpen:
			err = w.call(f)
		}
		if err != nil {
			return 1
		}
	}
}

func (w *fileWorkerState) receive() (Frame, error) {
	for {
		if f, ok := w.decoder.Next(); ok {
			return f, nil
		}
		var in [chunkSize]byte
		n, err := syscall.Read(0, in[:])
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return Frame{}, errGone
		}
		w.decoder.Feed(in[:n])
	}
}

func (w *fileWorkerState) send(f Frame) error { return writeAll(1, encode(f)) }

// call runs one request and answers it; an error means that PID 1 is gone.
func (w *fileWorkerState) call(f Frame) error {
	var r fileRequest
	err := json.Unmarshal(f.Payload, &r)
	var answer any
	if err == nil {
		answer, err = w.perform(f.Stream, r)
	}
	switch {
	case errors.Is(err, errGone):
		return err
	case errors.Is(err, errAborted):
		return w.send(Frame{Type: tFileError, Stream: f.Stream, Payload: mustJSON(fileFailure{"ECANCELED", "aborted"})})
	case err != nil:
		fail := fileFailure{errnoName(err), err.Error()}
		var named *namedError
		if errors.As(err, &named) {
			fail.Errno = named.errno
		}
		return w.send(Frame{Type: tFileError, Stream: f.Stream, Payload: mustJSON(fail)})
	}
	return w.send(Frame{Type: tFileReply, Stream: f.Stream, Payload: mustJSON(answer)})
}

func (w *fileWorkerState) perform(stream uint32, r fileRequest) (any, error) {
	p := string(r.Path)
	for i := 0; i < len(p); i++ {
		if p[i] == 0 {
			return nil, &namedError{"EINVAL", "a path must not hold NUL"}
		}
	}
	switch r.Op {
	case "read":
		return w.read(stream, p, r)
	case "write":
		return w.write(stream, p, r)
	case "list":
		return w.list(stream, p, r.Limit)
	case "stat":
		return statPath(p)
	case "mkdir":
		return struct{}{}, makeDir(p, r)
	case "remove":
		return struct{}{}, removePath(p, r.Recursive)
	}
	return nil, &namedError{"EINVAL", "unknown file operation " + r.Op}
}
