package main

// The session: reads frames from stdin and routes them. The reading goroutine never waits for the agent; whatever
// may take time runs in a goroutine of its own.

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	maxPing = 64
	// eofPause spaces the reads of a stdin whose writers are gone: a daemon may come back (docker keeps the
	// FIFO), and there is nothing to wait on meanwhile.
	eofPause = 200 * time.Millisecond
)

type server struct {
	out       *Outbox
	self      string
	workspace string
	bootID    string
	devNull   int
	reaper    *reaper
	killer    *killer
	execs     *execTable
	files     *fileRelay
	stopOnce  sync.Once

	mu       sync.Mutex
	assigned map[string]string
	digest   *string
	next     uint32
	stopping bool
}

func newServer(self, workspace string) (*server, error) {
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		return nil, fmt.Errorf("boot id: %w", err)
	}
	null, err := syscall.Open("/dev/null", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/null: %w", err)
	}
	s := &server{out: newOutbox(), self: self, workspace: workspace, bootID: hex.EncodeToString(id), devNull: null, next: 1}
	s.reaper = newReaper()
	s.killer = newKiller()
	s.execs = newExecTable(s)
	s.files = newFileRelay(s)
	go s.out.Run(1)
	return s, nil
}

// serve reads frames for ever.
func (s *server) serve(fd int) {
	var d Decoder
	buf := make([]byte, 256*1024)
	torn := 0
	for {
		n, err := syscall.Read(fd, buf)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n == 0 {
			time.Sleep(eofPause)
			continue
		}
		d.Feed(buf[:n])
		for f, ok := d.Next(); ok; f, ok = d.Next() {
			s.dispatch(f)
		}
		if d.Torn != torn {
			torn = d.Torn
			logf("torn frame on stdin (%d so far), waiting for a SYNC", torn)
		}
	}
}

func (s *server) dispatch(f Frame) {
	s.noteStream(f)
	switch f.Type {
	case tSync:
		// A new client begins: file calls of the old one can have no end, commands go on.
		s.files.abortAll()
		s.out.Urgent(Frame{Type: tSyncAck, Payload: f.Payload})
	case tPing:
		s.out.Urgent(Frame{Type: tPong, Stream: f.Stream, Payload: f.Payload[:min(len(f.Payload), maxPing)]})
	case tHello:
		var r helloRequest
		if s.parse(f, &r) {
			if r.Protocol != protocolVersion {
				s.fail(f.Stream, "VERSION", fmt.Sprintf("this supervisor speaks protocol %d, not %d", protocolVersion, r.Protocol))
				return
			}
			s.out.Urgent(Frame{Type: tReady, Stream: f.Stream, Payload: mustJSON(s.ready())})
		}
	case tListExecs:
		s.reply(f.Stream, map[string]any{"execs": s.execs.list()})
	case tAssign:
		var r assignRequest
		if s.parse(f, &r) {
			s.assign(f.Stream, r.Env)
		}
	case tExec:
		s.execs.start(f)
	case tStdin:
		s.execs.stdin(f)
	case tSignal:
		var r signalRequest
		if s.parse(f, &r) {
			go s.execs.signal(f.Stream, r)
		}
	case tKillAll:
		var r killAllRequest
		if s.parse(f, &r) {
			go s.killAll(f.Stream, r.Signo)
		}
	case tStop:
		var r stopRequest
		if s.parse(f, &r) {
			go s.stop(time.Duration(r.GraceSeconds * float64(time.Second)))
		}
	case tFileOpen, tFileData, tFileAck, tFileEnd, tFileAbort:
		s.files.handle(f)
	default:
		s.fail(f.Stream, "UNKNOWN_TYPE", fmt.Sprintf("frame type %#x is not known to protocol %d", f.Type, protocolVersion))
	}
}

// noteStream remembers the highest id a client chose, so that the next client can start above it.
func (s *server) noteStream(f Frame) {
	s.mu.Lock()
	if f.Stream >= s.next && f.Stream < 1<<32-1 {
		s.next = f.Stream + 1
	}
	s.mu.Unlock()
}

func (s *server) parse(f Frame, into any) bool {
	if err := json.Unmarshal(f.Payload, into); err != nil {
		s.fail(f.Stream, "INVALID", fmt.Sprintf("payload of frame type %#x: %v", f.Type, err))
		return false
	}
	return true
}

func (s *server) reply(stream uint32, v any) {
	s.out.Urgent(Frame{Type: tReply, Stream: stream, Payload: mustJSON(v)})
}

func (s *server) fail(stream uint32, code, message string) {
	s.out.Urgent(Frame{Type: tError, Stream: stream, Payload: mustJSON(failure{code, message})})
}

func (s *server) ready() readyReply {
	execs := s.execs.list()
	s.mu.Lock()
	defer s.mu.Unlock()
	return readyReply{protocolVersion, os.Getpid(), s.bootID, s.digest, s.next, execs}
}

// assign sets the attempt's environment, once. json.Marshal sorts keys, so its digest identifies the map.
func (s *server) assign(stream uint32, env map[string]string) {
	if key, bad := badEnv(env); bad {
		s.fail(stream, "INVALID", fmt.Sprintf("environment variable %q: a name needs bytes other than '=' and NUL, a value no NUL", key))
		return
	}
	sum := sha256.Sum256(mustJSON(env))
	digest := hex.EncodeToString(sum[:])
	s.mu.Lock()
	other := s.digest != nil && *s.digest != digest
	if !other {
		s.assigned, s.digest = env, &digest
	}
	s.mu.Unlock()
	if other {
		s.fail(stream, "ALREADY_ASSIGNED", "this sandbox already has another attempt's environment")
		return
	}
	s.reply(stream, map[string]any{"assigned": digest})
}

func (s *server) environment() (map[string]string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.assigned, s.digest != nil
}

func (s *server) isStopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopping
}

func (s *server) killAll(stream uint32, signo int) {
	if signo < 1 || signo > 64 {
		s.fail(stream, "INVALID", fmt.Sprintf("signal %d", signo))
		return
	}
	if syscall.Signal(signo) != syscall.SIGKILL {
		s.killer.all(syscall.Signal(signo))
		s.reply(stream, map[string]any{"left": len(s.agentProcesses())})
		return
	}
	s.reply(stream, map[string]any{"left": s.exterminate()})
}

// agentProcesses lists living processes other than PID 1 and the file workers.
func (s *server) agentProcesses() []proc {
	workers := s.files.workerPids()
	var live []proc
	for _, p := range scanProcesses() {
		if p.pid != 1 && !p.dead && !workers[p.pid] {
			live = append(live, p)
		}
	}
	return live
}

// exterminate kills every process but PID 1 until none is left, or says how many survive.
func (s *server) exterminate() int {
	pause := time.Millisecond
	for deadline := time.Now().Add(killDeadline); ; {
		s.killer.all(syscall.SIGKILL)
		left := len(s.agentProcesses())
		if left == 0 || time.Now().After(deadline) {
			return left
		}
		time.Sleep(pause)
		pause = min(2*pause, 50*time.Millisecond)
	}
}

// stop ends the sandbox: TERM to all, grace, KILL, exit 0. Only the first call acts.
func (s *server) stop(grace time.Duration) {
	s.stopOnce.Do(func() {
		s.mu.Lock()
		s.stopping = true
		s.mu.Unlock()
		s.files.abortAll()
		s.killer.all(syscall.SIGTERM)
		for deadline := time.Now().Add(grace); len(s.agentProcesses()) > 0 && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond)
		}
		if left := s.exterminate(); left > 0 {
			logf("stop: %d processes survive SIGKILL", left)
		}
		s.execs.waitAll(time.Second)
		flushed := make(chan struct{})
		go func() { s.out.Flush(); close(flushed) }()
		select {
		case <-flushed:
		case <-time.After(time.Second): // nobody reads: the exit must not wait for it
		}
		os.Exit(0)
	})
}
