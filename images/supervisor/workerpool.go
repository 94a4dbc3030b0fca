package main

// Processes of uid 1000 that do file work. At most one idles, for a short while; it must answer a ping before it is
// used again, since the agent may have stopped or ended it meanwhile.

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	workerIdle = 10 * time.Second
	pingLimit  = 500 * time.Millisecond
	// sendLimit bounds a write to a worker that does not read.
	sendLimit = 30 * time.Second
)

type worker struct {
	pid    int
	in     *os.File
	out    *os.File
	frames chan Frame // closed when the worker is gone or sends rubbish
	quit   chan struct{}
	status <-chan syscall.WaitStatus
}

type workerPool struct {
	s     *server
	mu    sync.Mutex
	live  map[int]bool
	idle  *worker
	since time.Time
}

func newWorkerPool(s *server) *workerPool { return &workerPool{s: s, live: map[int]bool{}} }

func (p *workerPool) pids() map[int]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[int]bool, len(p.live))
	for pid := range p.live {
		out[pid] = true
	}
	return out
}

func (p *workerPool) take() (*worker, error) {
	p.mu.Lock()
	w := p.idle
	p.idle = nil
	p.mu.Unlock()
	if w != nil {
		if w.alive() {
			return w, nil
		}
		p.destroy(w)
	}
	return p.start()
}

// give keeps a worker for the next call, unless one idles already.
func (p *workerPool) give(w *worker) {
	p.mu.Lock()
	extra := w
	if p.idle == nil {
		p.idle, extra = w, nil
		p.since = time.Now()
		since := p.since
		time.AfterFunc(workerIdle, func() { p.expire(w, since) })
	}
	p.mu.Unlock()
	if extra != nil {
		p.destroy(extra)
	}
}

func (p *workerPool) expire(w *worker, since time.Time) {
	p.mu.Lock()
	mine := p.idle == w && p.since == since
	if mine {
		p.idle = nil
	}
	p.mu.Unlock()
	if mine {
		p.destroy(w)
	}
}

func (p *workerPool) start() (*worker, error) {
	theirIn, in, err := childPipe(agentUID, agentGID)
	if err != nil {
		return nil, err
	}
	defer syscall.Close(theirIn)
	out, theirOut, err := childPipe(agentUID, agentGID)
	if err != nil {
		syscall.Close(in)
		return nil, err
	}
	defer syscall.Close(theirOut)
	w := &worker{frames: make(chan Frame, 1), quit: make(chan struct{})}
	if w.in, err = ours(in, "worker in"); err != nil {
		syscall.Close(out)
		return nil, err
	}
	if w.out, err = ours(out, "worker out"); err != nil {
		w.in.Close()
		return nil, err
	}
	attr := &syscall.ProcAttr{
		Dir:   "/",
		Env:   []string{"GOMAXPROCS=1"},
		Files: []uintptr{uintptr(theirIn), uintptr(theirOut), uintptr(p.s.devNull)},
		Sys:   &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: agentUID, Gid: agentGID, Groups: []uint32{}}},
	}
	w.pid, w.status, err = p.s.fork(p.s.self, []string{p.s.self, fileWorkerMode}, attr)
	if err != nil {
		w.in.Close()
		w.out.Close()
		return nil, err
	}
	p.mu.Lock()
	p.live[w.pid] = true
	p.mu.Unlock()
	go w.pump()
	return w, nil
}

// destroy ends a worker and waits until it is gone, out of reach of a stop signal.
func (p *workerPool) destroy(w *worker) {
	close(w.quit)
	w.in.Close()
	w.out.Close()
	if err := p.s.killer.kill(w.pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		logf("ending file worker %d: %v", w.pid, err)
	}
	<-w.status
	p.mu.Lock()
	delete(p.live, w.pid)
	p.mu.Unlock()
}

func (w *worker) send(f Frame) error {
	if err := w.in.SetWriteDeadline(time.Now().Add(sendLimit)); err != nil {
		return err
	}
	_, err := w.in.Write(encode(f))
	return err
}

func (w *worker) pump() {
	defer close(w.frames)
	var d Decoder
	buf := make([]byte, headerSize+chunkSize)
	for {
		n, err := w.out.Read(buf)
		if err != nil {
			return
		}
		d.Feed(buf[:n])
		for f, ok := d.Next(); ok; f, ok = d.Next() {
			select {
			case w.frames <- f:
			case <-w.quit:
				return
			}
		}
		if d.Torn > 0 {
			return
		}
	}
}

func (w *worker) alive() bool {
	if w.send(Frame{Type: tPing}) != nil {
		return false
	}
	select {
	case f, ok := <-w.frames:
		return ok && f.Type == tPong
	case <-time.After(pingLimit):
		return false
	}
}
