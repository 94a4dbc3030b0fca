package main

// PID 1's duty: wait for every child, its own commands and adopted orphans alike. A command's status may arrive
// before its pid is known to the caller, so statuses of strangers are kept while a spawn is under way.

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

type reaper struct {
	mu       sync.Mutex
	waiting  map[int]chan syscall.WaitStatus
	spawning int
	early    map[int]syscall.WaitStatus
}

func newReaper() *reaper {
	r := &reaper{waiting: map[int]chan syscall.WaitStatus{}, early: map[int]syscall.WaitStatus{}}
	chld := make(chan os.Signal, 1)
	signal.Notify(chld, syscall.SIGCHLD)
	go func() {
		for range chld {
			r.reap()
		}
	}()
	return r
}

func (r *reaper) reap() {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		r.mu.Lock()
		if ch, ok := r.waiting[pid]; ok {
			delete(r.waiting, pid)
			ch <- ws
		} else if r.spawning > 0 {
			r.early[pid] = ws
		}
		r.mu.Unlock()
	}
}

// knows says whether somebody waits for pid.
func (r *reaper) knows(pid int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waiting[pid] != nil
}

// spawn runs fork and returns the pid with a channel that gets its status once.
func (r *reaper) spawn(fork func() (int, error)) (int, <-chan syscall.WaitStatus, error) {
	r.mu.Lock()
	r.spawning++
	r.mu.Unlock()
	pid, err := fork()
	r.mu.Lock()
	defer r.mu.Unlock()
	ch := make(chan syscall.WaitStatus, 1)
	if err == nil {
		if ws, ok := r.early[pid]; ok {
			delete(r.early, pid)
			ch <- ws
		} else {
			r.waiting[pid] = ch
		}
	}
	r.spawning--
	if r.spawning == 0 {
		clear(r.early)
	}
	return pid, ch, err
}
