package main

// One command from EXEC to EXITED: exactly one end event, after every byte it had written by then.

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

type execution struct {
	s       *server
	id      string
	stream  uint32
	req     execRequest
	lane    *Lane
	stdout  *outputStream
	stderr  *outputStream
	stdin   *stdinStream
	started chan struct{} // closed when pid is known or the start has failed
	ended   chan struct{}
	pid     atomic.Int64

	mu       sync.Mutex
	exited   bool
	timedOut bool
	killed   chan bool // from the timeout's kill: was it confirmed?
	result   *execResult
}

// checkExec refuses what could never be run, before anything is registered.
func checkExec(r *execRequest) error {
	if r.ExecID == "" || len(r.ExecID) > 128 {
		return fmt.Errorf("exec_id must have 1 to 128 bytes")
	}
	if len(r.Argv) == 0 || r.Argv[0] == "" {
		return fmt.Errorf("argv must name a program")
	}
	for _, a := range append(r.Argv, r.Cwd) {
		for i := 0; i < len(a); i++ {
			if a[i] == 0 {
				return fmt.Errorf("argv and cwd must not hold NUL")
			}
		}
	}
	if key, bad := badEnv(r.Env); bad {
		return fmt.Errorf("environment variable %q is not possible", key)
	}
	if t := r.TimeoutSeconds; t != nil && (*t <= 0 || math.IsNaN(*t) || *t > 1e9) {
		return fmt.Errorf("timeout_seconds must be above 0 and finite")
	}
	if r.UID == nil {
		r.UID = ptr(uint32(agentUID))
	}
	if r.GID == nil {
		r.GID = ptr(uint32(agentGID))
	}
	if (*r.UID != agentUID || *r.GID != agentGID) && !r.Admin {
		return fmt.Errorf("uid %d gid %d needs admin", *r.UID, *r.GID)
	}
	return nil
}

func newExecution(s *server, stream uint32, r execRequest) *execution {
	x := &execution{s: s, id: r.ExecID, stream: stream, req: r, lane: s.out.newLane(),
		started: make(chan struct{}), ended: make(chan struct{}), killed: make(chan bool, 1)}
	x.stdout = &outputStream{x: x, typ: tStdout, limit: r.MaxOutputBytes}
	x.stderr = &outputStream{x: x, typ: tStderr, limit: r.MaxOutputBytes}
	if r.Stdin {
		x.stdin = newStdinStream(x)
	}
	return x
}

// run lives as long as the command.
func (x *execution) run(assigned map[string]string) {
	began := time.Now()
	status, failed := x.begin(assigned)
	close(x.started)
	if failed != nil {
		x.finish(&execResult{DurationNs: time.Since(began).Nanoseconds(), ExitCode: failed.exitCode, Error: &failed.message, ErrorErrno: &failed.errno})
		return
	}
	x.lane.Send(Frame{Type: tStarted, Stream: x.stream, Payload: mustJSON(map[string]int{"pid": int(x.pid.Load())})})
	var readers sync.WaitGroup
	for _, o := range []*outputStream{x.stdout, x.stderr} {
		readers.Add(1)
		go func(o *outputStream) { defer readers.Done(); o.pump() }(o)
	}
	if x.stdin != nil {
		go x.stdin.pump()
	}
	var timer *time.Timer
	if t := x.req.TimeoutSeconds; t != nil {
		timer = time.AfterFunc(time.Duration(*t*float64(time.Second)), x.timeOut)
	}
	ws := <-status
	duration := time.Since(began)
	x.mu.Lock()
	x.exited = true
	timedOut := x.timedOut
	x.mu.Unlock()
	if timer != nil {
		timer.Stop()
	}
	r := &execResult{TimedOut: timedOut, DurationNs: duration.Nanoseconds()}
	if timedOut && !<-x.killed {
		r.Error = ptr("some of the command's processes outlived SIGKILL")
		r.ErrorErrno = ptr("UNCONFIRMED")
	}
	x.stdout.stop()
	x.stderr.stop()
	readers.Wait()
	if x.stdin != nil {
		x.stdin.close()
	}
	if ws.Signaled() {
		r.Signal = ptr(int(ws.Signal()))
	} else {
		r.ExitCode = ptr(ws.ExitStatus())
	}
	x.finish(r)
}

// begin makes the pipes and forks; on success the parent's ends are left in the streams.
func (x *execution) begin(assigned map[string]string) (<-chan syscall.WaitStatus, *startError) {
	c := command{cwd: x.s.absolute(string(x.req.Cwd)), uid: *x.req.UID, gid: *x.req.GID,
		env: mergeEnv(baseEnv, assigned, x.req.Env), files: [3]int{x.s.devNull, -1, -1}}
	for _, a := range x.req.Argv {
		c.argv = append(c.argv, string(a))
	}
	var theirs []int
	defer func() {
		for _, fd := range theirs {
			syscall.Close(fd)
		}
	}()
	fail := func(err error) (<-chan syscall.WaitStatus, *startError) {
		x.closePipes()
		return nil, &startError{nil, errnoName(err), "pipe: " + err.Error()}
	}
	for i, o := range []*outputStream{x.stdout, x.stderr} {
		r, w, err := childPipe(c.uid, c.gid)
		if err != nil {
			return fail(err)
		}
		theirs = append(theirs, w)
		c.files[1+i] = w
		if err := o.open(r); err != nil {
			return fail(err)
		}
	}
	if x.stdin != nil {
		r, w, err := childPipe(c.uid, c.gid)
		if err != nil {
			return fail(err)
		}
		theirs = append(theirs, r)
		c.files[0] = r
		if err := x.stdin.open(w); err != nil {
			return fail(err)
		}
	}
	pid, status, failed := x.s.launch(c)
	if failed != nil {
		x.closePipes()
		return nil, failed
	}
	x.pid.Store(int64(pid))
	return status, nil
}

func (x *execution) closePipes() {
	x.stdout.abandon()
	x.stderr.abandon()
	if x.stdin != nil {
		x.stdin.close()
	}
}

// timeOut kills the command's lineage, unless it ended first: a fast death is not a timeout.
func (x *execution) timeOut() {
	x.mu.Lock()
	if x.exited {
		x.mu.Unlock()
		return
	}
	x.timedOut = true
	x.mu.Unlock()
	_, ok := x.s.killer.exterminate(newLineage(int(x.pid.Load()), nil, x.s.files.workerPids()))
	x.killed <- ok
}

func (x *execution) finish(r *execResult) {
	r.StdoutTotal, r.StdoutShipped = x.stdout.total.Load(), x.stdout.shipped.Load()
	r.StderrTotal, r.StderrShipped = x.stderr.total.Load(), x.stderr.shipped.Load()
	x.mu.Lock()
	x.exited, x.result = true, r
	x.mu.Unlock()
	x.s.execs.retire(x)
	x.lane.Send(Frame{Type: tExited, Stream: x.stream, Payload: mustJSON(r)})
	close(x.ended)
}

func (x *execution) info() execInfo {
	x.mu.Lock()
	defer x.mu.Unlock()
	i := execInfo{ExecID: x.id, Stream: x.stream, Pid: int(x.pid.Load()), StdoutTotal: x.stdout.total.Load(),
		StderrTotal: x.stderr.total.Load(), MaxOutput: x.req.MaxOutputBytes, Stdin: x.req.Stdin, Result: x.result}
	if x.stdin != nil {
		i.StdinReceived = x.stdin.received.Load()
	}
	return i
}
