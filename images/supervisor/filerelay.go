package main

// File calls in PID 1: each runs in a worker process of uid 1000; PID 1 only passes checked frames on. The agent may
// kill or stop a worker, being the same uid: then the call fails with a typed error in bounded time, a temporary file
// is removed by a new worker, and the next call gets a new one.

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"sync"
	"time"
)

const (
	maxFileCalls = 8
	// fileDeadline bounds how long a worker may owe an answer; fsync of a big file on a busy disk is the slowest.
	fileDeadline = 30 * time.Second
	// cleanupDeadline bounds the removal of a temporary file that a dead worker left.
	cleanupDeadline = 5 * time.Second
	// inboxFrames: a client keeps to the window, so more frames than window/1 KiB means it does not.
	inboxFrames = 1024
)

type fileCall struct {
	stream uint32
	inbox  chan Frame
	abort  chan struct{}
	once   sync.Once
}

func (c *fileCall) cancel() { c.once.Do(func() { close(c.abort) }) }

type fileRelay struct {
	s     *server
	pool  *workerPool
	mu    sync.Mutex
	calls map[uint32]*fileCall
}

func newFileRelay(s *server) *fileRelay {
	return &fileRelay{s: s, pool: newWorkerPool(s), calls: map[uint32]*fileCall{}}
}

func (r *fileRelay) workerPids() map[int]bool { return r.pool.pids() }

func (r *fileRelay) fail(stream uint32, errno, message string) {
	r.s.out.Urgent(Frame{Type: tFileError, Stream: stream, Payload: mustJSON(fileFailure{errno, message})})
}

// handle routes one frame of a file call; it never waits.
func (r *fileRelay) handle(f Frame) {
	r.mu.Lock()
	c := r.calls[f.Stream]
	busy := len(r.calls) >= maxFileCalls
	fresh := f.Type == tFileOpen && c == nil && !busy
	if fresh {
		c = &fileCall{stream: f.Stream, inbox: make(chan Frame, inboxFrames), abort: make(chan struct{})}
		r.calls[f.Stream] = c
	}
	r.mu.Unlock()
	switch {
	case fresh:
		go r.run(c, f)
	case f.Type == tFileOpen && c != nil:
		r.fail(f.Stream, "EINVAL", "the stream is taken")
	case f.Type == tFileOpen:
		r.fail(f.Stream, "EAGAIN", "too many file calls at once")
	case c == nil: // it ended while the frame was under way
	case f.Type == tFileAbort:
		c.cancel()
	default:
		select {
		case c.inbox <- f:
		default:
			c.cancel()
		}
	}
}

func (r *fileRelay) abortAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.calls {
		c.cancel()
	}
}

// run carries one call to its end; the answer goes out after the call has left the table.
func (r *fileRelay) run(c *fileCall, open Frame) {
	lane := r.s.out.newLane()
	last := r.relay(c, open, lane)
	r.mu.Lock()
	delete(r.calls, c.stream)
	r.mu.Unlock()
	lane.Send(last)
}

func errorFrame(stream uint32, errno, message string) Frame {
	return Frame{Type: tFileError, Stream: stream, Payload: mustJSON(fileFailure{errno, message})}
}

func (r *fileRelay) relay(c *fileCall, open Frame, lane *Lane) Frame {
	var request fileRequest
	if err := json.Unmarshal(open.Payload, &request); err != nil {
		return errorFrame(c.stream, "EINVAL", err.Error())
	}
	request.Path = Text(r.s.absolute(string(request.Path)))
	tag := make([]byte, 8)
	if _, err := rand.Read(tag); err != nil {
		return errorFrame(c.stream, "EIO", err.Error())
	}
	request.Temp = ".gauntlet-" + hex.EncodeToString(tag) + ".tmp"
	w, err := r.pool.take()
	if err != nil {
		return errorFrame(c.stream, errnoName(err), "no file worker could be started: "+err.Error())
	}
	t := turn{writing: request.Op == "write", reading: request.Op == "read"}
	last, healthy := r.converse(c, w, &t, Frame{Type: tFileOpen, Stream: c.stream, Payload: mustJSON(request)}, lane)
	if healthy {
		r.pool.give(w)
		return last
	}
	r.pool.destroy(w)
	if t.temp != "" {
		r.removeTemp(t.temp)
	}
	return last
}

// turn says whose move it is: a worker that owes an answer has a deadline, a client thinking has none. It also holds
// the worker to the protocol, for the agent may have got hold of its pipe: nothing may flood the daemon.
type turn struct {
	writing, reading bool
	ready, ended     bool
	out, acked       uint64
	temp             string
	entries          int
}

const (
	maxAnswer  = 16 * 1024
	maxEntries = 32 << 20 // bytes of FILE_ENTRIES in one call
)

func (t *turn) workerOwes() bool {
	switch {
	case t.writing:
		return !t.ready || t.ended || t.acked < t.out
	case t.reading:
		return t.out-t.acked < window
	}
	return true
}

func (t *turn) fromClient(f Frame) {
	switch f.Type {
	case tFileData:
		t.out += uint64(len(f.Payload))
	case tFileEnd:
		t.ended = true
	case tFileAck:
		t.acked = min(f.Offset, t.out)
	}
}

// fromWorker notes a worker's frame; final=true ends the call, ok=false: a frame no worker of ours sends.
func (t *turn) fromWorker(f Frame) (final, ok bool) {
	switch f.Type {
	case tFileAck:
		if !t.writing {
			return false, false
		}
		if t.ready {
			ok = f.Offset > t.acked && f.Offset <= t.out
			t.acked = f.Offset
			return false, ok
		}
		var a struct {
			Temp Text `json:"temp"`
		}
		ok = f.Offset == 0 && len(f.Payload) <= maxAnswer && json.Unmarshal(f.Payload, &a) == nil
		t.ready, t.temp = true, string(a.Temp)
		return false, ok
	case tFileData:
		ok = t.reading && len(f.Payload) > 0 && len(f.Payload) <= chunkSize && f.Offset == t.out && t.out-t.acked < window
		t.out += uint64(len(f.Payload))
		return false, ok
	case tFileEntries:
		t.entries += headerSize + len(f.Payload)
		return false, !t.writing && !t.reading && t.entries <= maxEntries
	case tFileReply, tFileError:
		return true, len(f.Payload) <= maxAnswer
	}
	return false, false
}

// converse passes frames both ways until the call's last one. healthy=false: the worker must not be used again.
func (r *fileRelay) converse(c *fileCall, w *worker, t *turn, open Frame, lane *Lane) (last Frame, healthy bool) {
	gone := errorFrame(c.stream, "EIO", "the file worker was ended from inside the sandbox")
	if w.send(open) != nil {
		return gone, false
	}
	abort := c.abort
	timer := time.NewTimer(fileDeadline)
	defer timer.Stop()
	for {
		var late <-chan time.Time
		if t.workerOwes() || abort == nil {
			timer.Reset(fileDeadline)
			late = timer.C
		}
		select {
		case f, ok := <-w.frames:
			if !ok || f.Stream != c.stream {
				return gone, false
			}
			final, ok := t.fromWorker(f)
			if !ok {
				logf("a file worker broke the protocol with frame type %#x", f.Type)
				return gone, false
			}
			if final {
				return f, true
			}
			lane.Send(f)
		case f := <-c.inbox:
			t.fromClient(f)
			if w.send(f) != nil {
				return gone, false
			}
		case <-abort:
			abort = nil
			if w.send(Frame{Type: tFileAbort, Stream: c.stream}) != nil || !t.writing {
				return errorFrame(c.stream, "ECANCELED", "aborted"), false
			}
		case <-late:
			return errorFrame(c.stream, "ETIMEDOUT", "the file worker did not answer in time"), false
		}
	}
}

// removeTemp deletes what a worker left behind when it was ended in mid-write.
func (r *fileRelay) removeTemp(path string) {
	w, err := r.pool.take()
	if err != nil {
		logf("temporary file left behind: %v", err)
		return
	}
	if w.send(Frame{Type: tFileOpen, Payload: mustJSON(fileRequest{Op: "remove", Path: Text(path)})}) == nil {
		select {
		case _, ok := <-w.frames:
			if ok {
				r.pool.give(w)
				return
			}
		case <-time.After(cleanupDeadline):
		}
	}
	r.pool.destroy(w)
}
