package main

// Input of a command: queued within a window the client keeps to, written as the command takes it, acknowledged so
// that the window moves.

import (
	"os"
	"sync"
	"sync/atomic"
)

// window is how many bytes a client may have under way per stdin or file call.
const window = 512 * 1024

type stdinStream struct {
	x        *execution
	received atomic.Uint64

	mu     sync.Mutex
	more   *sync.Cond
	pipe   *os.File
	queue  [][]byte
	queued int
	eof    bool
	closed bool
}

func newStdinStream(x *execution) *stdinStream {
	s := &stdinStream{x: x}
	s.more = sync.NewCond(&s.mu)
	return s
}

func (s *stdinStream) open(fd int) (err error) {
	s.pipe, err = ours(fd, "stdin")
	return err
}

// push takes one frame; "" or what was wrong with it.
func (s *stdinStream) push(f Frame) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return "" // the client has been told, or is about to be
	case s.eof:
		return "stdin after its end"
	case f.Offset != s.received.Load():
		return "stdin offset does not follow"
	case s.queued+len(f.Payload) > window:
		return "stdin beyond the window"
	}
	s.received.Add(uint64(len(f.Payload)))
	s.queued += len(f.Payload)
	if len(f.Payload) > 0 {
		s.queue = append(s.queue, f.Payload)
	}
	s.eof = f.Flags&flagEOF != 0
	s.more.Signal()
	return ""
}

func (s *stdinStream) next() ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) == 0 {
		if s.eof || s.closed {
			return nil, false
		}
		s.more.Wait()
	}
	return s.queue[0], true
}

// pump writes until eof, until the command closes its end, or until close.
func (s *stdinStream) pump() {
	var written uint64
	var flags byte
	for chunk, ok := s.next(); ok; chunk, ok = s.next() {
		n, err := s.pipe.Write(chunk)
		written += uint64(n)
		s.mu.Lock()
		if err != nil {
			s.closed = true
		}
		if !s.closed {
			s.queued -= len(chunk)
			s.queue = s.queue[1:]
		}
		gone := s.closed
		s.mu.Unlock()
		if gone {
			flags = flagClosed
			break
		}
		s.x.s.out.Urgent(Frame{Type: tStdinAck, Stream: s.x.stream, Offset: written})
	}
	s.close()
	if flags != 0 {
		s.x.s.out.Urgent(Frame{Type: tStdinAck, Flags: flags, Stream: s.x.stream, Offset: written})
	}
}

// close ends the input; a blocked write returns.
func (s *stdinStream) close() {
	s.mu.Lock()
	s.closed, s.queue, s.queued = true, nil, 0
	s.more.Broadcast()
	s.mu.Unlock()
	if s.pipe != nil {
		s.pipe.Close()
	}
}
