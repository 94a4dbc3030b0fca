package main

// Reading and writing whole files in the worker. A read is shipped within a window the client moves; a write goes to
// a temporary file beside the target and appears by rename once length and SHA-256 are as announced.

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"syscall"
)

const readFlags = syscall.O_RDONLY | syscall.O_NONBLOCK | syscall.O_NOCTTY | syscall.O_CLOEXEC

func notRegular(mode uint32) error {
	switch mode & syscall.S_IFMT {
	case syscall.S_IFREG:
		return nil
	case syscall.S_IFDIR:
		return syscall.EISDIR
	}
	return &namedError{"EINVAL", "not a regular file"}
}

func (w *fileWorkerState) read(stream uint32, p string, r fileRequest) (any, error) {
	var st syscall.Stat_t
	if err := syscall.Stat(p, &st); err != nil { // opening a device or FIFO could already have an effect
		return nil, err
	}
	if err := notRegular(st.Mode); err != nil {
		return nil, err
	}
	fd, err := syscall.Open(p, readFlags, 0)
	if err != nil {
		return nil, err
	}
	defer syscall.Close(fd)
	if err := syscall.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if err := notRegular(st.Mode); err != nil {
		return nil, err
	}
	if r.Offset < 0 || (r.Length != nil && *r.Length < 0) {
		return nil, &namedError{"EINVAL", "offset and length must not be negative"}
	}
	sum := sha256.New()
	var sent, acked int64
	for r.Length == nil || sent < *r.Length {
		for sent-acked >= window {
			f, err := w.receive()
			switch {
			case err != nil:
				return nil, err
			case f.Stream != stream:
			case f.Type == tFileAbort:
				return nil, errAborted
			case f.Type == tFileAck:
				acked = int64(f.Offset)
			}
		}
		want := int64(chunkSize)
		if r.Length != nil {
			want = min(want, *r.Length-sent)
		}
		n, err := syscall.Pread(fd, w.buf[headerSize:headerSize+want], r.Offset+sent)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		if n == 0 {
			break
		}
		frame := w.buf[:headerSize+n]
		sum.Write(frame[headerSize:])
		putHeader(frame, tFileData, 0, stream, uint64(sent))
		if err := writeAll(1, frame); err != nil {
			return nil, errGone
		}
		sent += int64(n)
	}
	return fileDigest{sent, hex.EncodeToString(sum.Sum(nil)), st.Size}, nil
}

// target follows a link at p, so that writing through a link writes the file it names, as open(2) would.
func target(p string) (string, uint32, bool, error) {
	var st syscall.Stat_t
	err := syscall.Lstat(p, &st)
	if err == nil && st.Mode&syscall.S_IFMT == syscall.S_IFLNK {
		if p, err = filepath.EvalSymlinks(p); err != nil {
			return p, 0, false, err
		}
		err = syscall.Lstat(p, &st)
	}
	if err == syscall.ENOENT {
		return p, 0, false, nil
	}
	if err == nil {
		err = notRegular(st.Mode)
	}
	return p, st.Mode, err == nil, err
}

func (w *fileWorkerState) write(stream uint32, p string, r fileRequest) (any, error) {
	if r.Parents {
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			return nil, err
		}
	}
	p, mode, exists, err := target(p)
	if err != nil {
		return nil, err
	}
	if exists {
		// The directory decides whether a rename may replace a file; a file the agent may not write stays as it is.
		if err := syscall.Access(p, 2); err != nil {
			return nil, err
		}
		mode &= 0o7777
	} else {
		mode = 0o644
	}
	if r.Mode != nil {
		mode = *r.Mode & 0o7777
	}
	temp := filepath.Join(filepath.Dir(p), filepath.Base(r.Temp))
	fd, err := syscall.Open(temp, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_EXCL|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	done := false
	defer func() {
		syscall.Close(fd)
		if !done {
			syscall.Unlink(temp)
		}
	}()
	if err := w.send(Frame{Type: tFileAck, Stream: stream, Payload: mustJSON(map[string]Text{"temp": Text(temp)})}); err != nil {
		return nil, errGone
	}
	size, sum, end, err := w.receiveFile(stream, fd)
	if err != nil {
		return nil, err
	}
	digest := hex.EncodeToString(sum.Sum(nil))
	for _, want := range []fileRequest{r, end} {
		if (want.Size != nil && *want.Size != size) || (want.SHA256 != "" && want.SHA256 != digest) {
			return nil, &namedError{"DIGEST_MISMATCH", fmt.Sprintf("received %d bytes, sha256 %s", size, digest)}
		}
	}
	if err := syscall.Fchmod(fd, mode); err != nil {
		return nil, err
	}
	if err := syscall.Fsync(fd); err != nil {
		return nil, err
	}
	if err := syscall.Rename(temp, p); err != nil {
		return nil, err
	}
	done = true
	return fileDigest{size, digest, size}, nil
}

// receiveFile takes FILE_DATA until FILE_END, acknowledging what is on disk.
func (w *fileWorkerState) receiveFile(stream uint32, fd int) (int64, hash.Hash, fileRequest, error) {
	sum := sha256.New()
	var size int64
	var end fileRequest
	for {
		f, err := w.receive()
		if err != nil {
			return 0, nil, end, err
		}
		if f.Stream != stream {
			continue
		}
		switch f.Type {
		case tFileAbort:
			return 0, nil, end, errAborted
		case tFileEnd:
			if err := json.Unmarshal(f.Payload, &end); err != nil {
				return 0, nil, end, err
			}
			return size, sum, end, nil
		case tFileData:
			if int64(f.Offset) != size {
				return 0, nil, end, &namedError{"DIGEST_MISMATCH", "file data does not follow"}
			}
			sum.Write(f.Payload)
			if err := writeAll(fd, f.Payload); err != nil {
				return 0, nil, end, err
			}
			size += int64(len(f.Payload))
			if err := w.send(Frame{Type: tFileAck, Stream: stream, Offset: uint64(size)}); err != nil {
				return 0, nil, end, errGone
			}
		}
	}
}
