package main

// The commands of one sandbox: which are live, which ended lately, and requests that name one.

import (
	"encoding/json"
	"fmt"
	"path"
	"sync"
	"syscall"
	"time"
)

const (
	maxLive = 32
	// keptEnds is how many results a client that was away can still learn.
	keptEnds = 64
)

type execTable struct {
	s     *server
	mu    sync.Mutex
	live  map[uint32]*execution
	ids   map[string]*execution // live and kept
	ended []*execution
}

func newExecTable(s *server) *execTable {
	return &execTable{s: s, live: map[uint32]*execution{}, ids: map[string]*execution{}}
}

func (s *server) absolute(p string) string {
	if path.IsAbs(p) {
		return p
	}
	return s.workspace + "/" + p // not cleaned: the kernel resolves ".." after links, in the child
}

func (t *execTable) start(f Frame) {
	refuse := func(code, message string) {
		t.s.out.Urgent(Frame{Type: tRefused, Stream: f.Stream, Payload: mustJSON(failure{code, message})})
	}
	var r execRequest
	if err := json.Unmarshal(f.Payload, &r); err != nil {
		refuse("INVALID", err.Error())
		return
	}
	if err := checkExec(&r); err != nil {
		refuse("INVALID", err.Error())
		return
	}
	env, assigned := t.s.environment()
	if !assigned && !r.Admin {
		refuse("NOT_ASSIGNED", "this sandbox has not been assigned to an attempt")
		return
	}
	if t.s.isStopping() {
		refuse("STOPPING", "this sandbox is stopping")
		return
	}
	x := newExecution(t.s, f.Stream, r)
	t.mu.Lock()
	_, sameID := t.ids[r.ExecID]
	_, sameStream := t.live[f.Stream]
	full := len(t.live) >= maxLive
	if !sameID && !sameStream && !full {
		t.live[f.Stream], t.ids[r.ExecID] = x, x
	}
	t.mu.Unlock()
	switch {
	case sameID || sameStream:
		refuse("DUPLICATE", fmt.Sprintf("exec %q or stream %d is taken", r.ExecID, f.Stream))
	case full:
		refuse("TOO_MANY_EXECS", fmt.Sprintf("%d commands are live", maxLive))
	default:
		go x.run(env)
	}
}

func (t *execTable) stdin(f Frame) {
	t.mu.Lock()
	x := t.live[f.Stream]
	t.mu.Unlock()
	if x == nil { // it ended while the frame was under way
		t.s.out.Urgent(Frame{Type: tStdinAck, Flags: flagClosed, Stream: f.Stream, Offset: f.Offset})
		return
	}
	if x.stdin == nil {
		t.s.fail(f.Stream, "NO_STDIN", "the command was started without stdin")
		return
	}
	if wrong := x.stdin.push(f); wrong != "" {
		t.s.fail(f.Stream, "STDIN", wrong)
	}
}

// signal reaches a live command's lineage; SIGKILL is repeated until nothing of it is left.
func (t *execTable) signal(stream uint32, r signalRequest) {
	t.mu.Lock()
	x := t.ids[r.ExecID]
	if x != nil && t.live[x.stream] != x {
		x = nil
	}
	t.mu.Unlock()
	if x == nil {
		t.s.fail(stream, "NOT_FOUND", fmt.Sprintf("no live exec %q", r.ExecID))
		return
	}
	if r.Signo < 1 || r.Signo > 64 {
		t.s.fail(stream, "INVALID", fmt.Sprintf("signal %d", r.Signo))
		return
	}
	<-x.started
	pid := int(x.pid.Load())
	if pid == 0 {
		t.s.fail(stream, "NOT_FOUND", fmt.Sprintf("exec %q could not be started", r.ExecID))
		return
	}
	l := newLineage(pid, r.Pids, t.s.files.workerPids())
	if sig := syscall.Signal(r.Signo); sig != syscall.SIGKILL {
		t.s.reply(stream, map[string]any{"signalled": t.s.killer.strike(l, sig)})
		return
	}
	n, ok := t.s.killer.exterminate(l)
	if !ok {
		t.s.fail(stream, "UNCONFIRMED", "some processes outlived SIGKILL")
		return
	}
	t.s.reply(stream, map[string]any{"signalled": n})
}

// retire moves an ended command to the kept ones and forgets the oldest beyond keptEnds.
func (t *execTable) retire(x *execution) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.live, x.stream)
	t.ended = append(t.ended, x)
	if len(t.ended) > keptEnds {
		delete(t.ids, t.ended[0].id)
		t.ended = append([]*execution(nil), t.ended[1:]...)
	}
}

func (t *execTable) list() []execInfo {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := []execInfo{}
	for _, x := range t.ended {
		out = append(out, x.info())
	}
	for _, x := range t.live {
		out = append(out, x.info())
	}
	return out
}

// waitAll gives the live commands a moment to report their end.
func (t *execTable) waitAll(limit time.Duration) {
	t.mu.Lock()
	var open []*execution
	for _, x := range t.live {
		open = append(open, x)
	}
	t.mu.Unlock()
	over := time.After(limit)
	for _, x := range open {
		select {
		case <-x.ended:
		case <-over:
			return
		}
	}
}
