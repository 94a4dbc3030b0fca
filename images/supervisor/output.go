package main

// Output of a command: drained always, shipped up to the cap, counted to the end. Reading never waits for EOF, since
// a background child may hold the pipe open for ever.

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

const fGetPipeSize = 1032

// childPipe makes a pipe whose ends close on exec; it belongs to the child's user, so that /dev/stdout can be opened.
func childPipe(uid, gid uint32) (r, w int, err error) {
	var p [2]int
	if err := syscall.Pipe2(p[:], syscall.O_CLOEXEC); err != nil {
		return -1, -1, err
	}
	_ = syscall.Fchown(p[0], int(uid), int(gid)) // a sandbox that cannot chown pipes only loses that convenience
	return p[0], p[1], nil
}

// ours wraps the parent's end of a pipe for the runtime's poller.
func ours(fd int, name string) (*os.File, error) {
	if err := syscall.SetNonblock(fd, true); err != nil {
		syscall.Close(fd)
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

type outputStream struct {
	x       *execution
	typ     byte
	limit   uint64
	pipe    *os.File
	total   atomic.Uint64
	shipped atomic.Uint64
	closing atomic.Bool
}

func (o *outputStream) open(fd int) (err error) {
	o.pipe, err = ours(fd, "output")
	return err
}

func (o *outputStream) abandon() {
	if o.pipe != nil {
		o.pipe.Close()
	}
}

// stop tells pump that the command has ended: take what lies in the pipe and leave.
func (o *outputStream) stop() {
	o.closing.Store(true)
	_ = o.pipe.SetReadDeadline(time.Unix(1, 0)) // fails only on a closed pipe, and then pump has ended
}

func (o *outputStream) pump() {
	defer o.pipe.Close()
	buf := bufferPool.Get().(*[]byte)
	defer func() { bufferPool.Put(buf) }()
	for {
		n, err := o.pipe.Read((*buf)[headerSize:])
		if n > 0 {
			buf = o.take(buf, n)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) && o.closing.Load() {
			buf = o.drain(buf)
			return
		}
		if err != nil {
			if err != io.EOF {
				logf("reading output: %v", err)
			}
			return
		}
	}
}

// drain reads without waiting, at most what the pipe could hold when the command ended.
func (o *outputStream) drain(buf *[]byte) *[]byte {
	raw, err := o.pipe.SyscallConn()
	if err != nil {
		return buf
	}
	_ = o.pipe.SetReadDeadline(time.Time{})
	left := chunkSize
	_ = raw.Control(func(fd uintptr) {
		if size, _, e := syscall.Syscall(syscall.SYS_FCNTL, fd, fGetPipeSize, 0); e == 0 {
			left = int(size)
		}
	})
	for left > 0 {
		n := 0
		_ = raw.Control(func(fd uintptr) { n, _ = syscall.Read(int(fd), (*buf)[headerSize:headerSize+min(left, chunkSize)]) })
		if n <= 0 {
			return buf
		}
		left -= n
		buf = o.take(buf, n)
	}
	return buf
}

// take ships n bytes as far as the cap allows, and returns a buffer to go on with.
func (o *outputStream) take(buf *[]byte, n int) *[]byte {
	offset := o.total.Load()
	o.total.Add(uint64(n))
	shipped := o.shipped.Load()
	if shipped >= o.limit {
		return buf
	}
	n = int(min(uint64(n), o.limit-shipped))
	o.shipped.Add(uint64(n))
	o.x.lane.SendBuffer(buf, n, o.typ, o.x.stream, offset)
	return bufferPool.Get().(*[]byte)
}
