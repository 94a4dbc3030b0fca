package main

// Everything PID 1 writes to stdout passes here. One goroutine writes; urgent frames (pongs, replies) go first,
// then lanes take turns, one frame each. A lane holds at most laneDepth frames and its sender waits, so a client
// that reads slowly bounds memory and slows only those who have something to say.

import (
	"sync"
	"syscall"
)

const (
	chunkSize   = 64 * 1024
	laneDepth   = 2
	urgentDepth = 1024
)

var bufferPool = sync.Pool{New: func() any { b := make([]byte, headerSize+chunkSize); return &b }}

type outFrame struct {
	bytes  []byte
	pooled *[]byte
}

// Outbox is the fair, bounded write queue.
type Outbox struct {
	mu     sync.Mutex
	work   *sync.Cond
	room   *sync.Cond
	idle   *sync.Cond
	urgent []outFrame
	ready  []*Lane
	busy   bool
}

// Lane is one exec's or file call's place in the queue; its frames keep their order.
type Lane struct {
	box    *Outbox
	room   *sync.Cond
	frames []outFrame
}

func newOutbox() *Outbox {
	o := &Outbox{}
	o.work, o.room, o.idle = sync.NewCond(&o.mu), sync.NewCond(&o.mu), sync.NewCond(&o.mu)
	return o
}

func (o *Outbox) newLane() *Lane { return &Lane{box: o, room: sync.NewCond(&o.mu)} }

// Urgent queues a control frame ahead of all lanes.
func (o *Outbox) Urgent(f Frame) {
	b := encode(f)
	o.mu.Lock()
	for len(o.urgent) >= urgentDepth {
		o.room.Wait()
	}
	o.urgent = append(o.urgent, outFrame{bytes: b})
	o.mu.Unlock()
	o.work.Signal()
}

// Send queues a frame on the lane, waiting for room.
func (l *Lane) Send(f Frame) { l.push(outFrame{bytes: encode(f)}) }

// SendBuffer queues n payload bytes that lie in a pooled buffer behind its header space; the buffer is given away.
func (l *Lane) SendBuffer(buf *[]byte, n int, typ byte, stream uint32, offset uint64) {
	b := (*buf)[:headerSize+n]
	putHeader(b, typ, 0, stream, offset)
	l.push(outFrame{bytes: b, pooled: buf})
}

func (l *Lane) push(f outFrame) {
	o := l.box
	o.mu.Lock()
	for len(l.frames) >= laneDepth {
		l.room.Wait()
	}
	l.frames = append(l.frames, f)
	if len(l.frames) == 1 {
		o.ready = append(o.ready, l)
	}
	o.mu.Unlock()
	o.work.Signal()
}

func (o *Outbox) take() outFrame {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.busy = false
	for len(o.urgent) == 0 && len(o.ready) == 0 {
		o.idle.Broadcast()
		o.work.Wait()
	}
	o.busy = true
	if len(o.urgent) > 0 {
		f := o.urgent[0]
		o.urgent = o.urgent[1:]
		o.room.Signal()
		return f
	}
	l := o.ready[0]
	o.ready = o.ready[1:]
	f := l.frames[0]
	l.frames = l.frames[1:]
	if len(l.frames) > 0 {
		o.ready = append(o.ready, l)
	}
	l.room.Signal()
	return f
}

// Run writes for ever. A frame that stdout refuses (nobody holds the other end) is dropped: the next client
// resynchronises.
func (o *Outbox) Run(fd int) {
	for {
		f := o.take()
		if err := writeAll(fd, f.bytes); err != nil {
			logf("stdout: %v", err)
		}
		if f.pooled != nil {
			bufferPool.Put(f.pooled)
		}
	}
}

// Flush waits until everything queued so far has been written.
func (o *Outbox) Flush() {
	o.mu.Lock()
	for o.busy || len(o.urgent) > 0 || len(o.ready) > 0 {
		o.idle.Wait()
	}
	o.mu.Unlock()
}

func writeAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := syscall.Write(fd, b)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
