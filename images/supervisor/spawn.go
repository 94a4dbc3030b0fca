package main

// Starting a command: environment, PATH search, descriptors, and telling apart why a start failed. Directory and
// program are resolved in the child, which already is the target uid.

import (
	"path"
	"sort"
	"strings"
	"syscall"
	"time"
)

// baseEnv is the fixed environment of agents and judges alike; the assignment and each exec add to it.
var baseEnv = map[string]string{
	"PATH":                    "/usr/local/bin:/usr/bin:/bin",
	"HOME":                    "/home/agent",
	"USER":                    "agent",
	"LOGNAME":                 "agent",
	"SHELL":                   "/bin/sh",
	"LANG":                    "C.UTF-8",
	"TZ":                      "UTC",
	"PYTHONHASHSEED":          "0",
	"PYTHONDONTWRITEBYTECODE": "1",
}

// agentPlaces are where the agent can make files: PID 1 does not even look there, it lets the child try.
var agentPlaces = []string{"/workspace", "/tmp", "/home", "/dev", "/proc", "/var/tmp", "/run"}

func badEnv(env map[string]string) (string, bool) {
	for k, v := range env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.Contains(v, "\x00") {
			return k, true
		}
	}
	return "", false
}

func mergeEnv(layers ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, layer := range layers {
		for k, v := range layer {
			out[k] = v
		}
	}
	return out
}

func envList(env map[string]string) []string {
	out := make([]string, 0, len(env))
	for k, v := range env {
		out = append(out, k+"="+v)
	}
	sort.Strings(out)
	return out
}

// candidates lists the paths to try for name, skipping those in image directories that certainly do not exist: each
// failed try costs a fork.
func (s *server) candidates(name, search string) []string {
	if strings.Contains(name, "/") {
		return []string{name}
	}
	var out []string
	for _, dir := range strings.Split(search, ":") {
		if dir == "" {
			dir = "."
		}
		p := path.Join(dir, name)
		if dir == "." {
			p = "./" + name
		}
		if s.imageOwned(p) {
			var st syscall.Stat_t
			if err := syscall.Stat(p, &st); err == syscall.ENOENT || err == syscall.ENOTDIR {
				continue
			}
		}
		out = append(out, p)
	}
	return out
}

func (s *server) imageOwned(p string) bool {
	if !path.IsAbs(p) {
		return false
	}
	for _, place := range append([]string{s.workspace}, agentPlaces...) {
		if p == place || strings.HasPrefix(p, place+"/") {
			return false
		}
	}
	return true
}

type command struct {
	argv     []string
	cwd      string
	env      map[string]string
	uid, gid uint32
	files    [3]int
}

type startError struct {
	exitCode *int // 127, 126, or nil when the program is not to blame
	errno    string
	message  string
}

// launch forks the command; on failure it says what was wrong.
func (s *server) launch(c command) (int, <-chan syscall.WaitStatus, *startError) {
	attr := &syscall.ProcAttr{
		Dir:   c.cwd,
		Env:   envList(c.env),
		Files: []uintptr{uintptr(c.files[0]), uintptr(c.files[1]), uintptr(c.files[2])},
		Sys: &syscall.SysProcAttr{
			Setsid:     true,
			Credential: &syscall.Credential{Uid: c.uid, Gid: c.gid, Groups: []uint32{}},
		},
	}
	last := error(syscall.ENOENT)
	for _, candidate := range s.candidates(c.argv[0], c.env["PATH"]) {
		pid, status, err := s.fork(candidate, c.argv, attr)
		if err == nil {
			return pid, status, nil
		}
		switch err {
		case syscall.ENOENT, syscall.ENOTDIR:
			if last != syscall.EACCES { // execvp: a file that may not be run outranks one that is not there
				last = err
			}
			continue
		case syscall.EACCES:
			last = err
			continue
		}
		last = err
		break
	}
	return 0, nil, s.explain(c, attr, last)
}

// spawnPatience is how long a fork may take before it is looked into.
const spawnPatience = 2 * time.Second

// fork starts a child and registers it with the reaper. Between setuid and execve the child already is the agent's to
// signal while our thread (and every other fork) waits for it: one that was stopped there is ended.
func (s *server) fork(path string, argv []string, attr *syscall.ProcAttr) (int, <-chan syscall.WaitStatus, error) {
	done := make(chan struct{})
	defer close(done)
	watch := time.AfterFunc(spawnPatience, func() {
		for {
			s.endStoppedForks()
			select {
			case <-done:
				return
			case <-time.After(spawnPatience):
			}
		}
	})
	defer watch.Stop()
	return s.reaper.spawn(func() (int, error) { return syscall.ForkExec(path, argv, attr) })
}

// endStoppedForks kills stopped children that still are copies of ourselves and that nobody waits for yet.
func (s *server) endStoppedForks() {
	procs := scanProcesses()
	self := ""
	for _, p := range procs {
		if p.pid == 1 {
			self = p.comm
		}
	}
	for _, p := range procs {
		if p.parent == 1 && p.stopped && p.comm == self && !s.reaper.knows(p.pid) {
			logf("child %d was stopped before its execve, ending it", p.pid)
			if err := s.killer.kill(p.pid, syscall.SIGKILL); err != nil {
				logf("kill(%d, KILL): %v", p.pid, err)
			}
		}
	}
}

// explain tells a bad directory from a bad program: a child that only changes directory shares the first fault.
func (s *server) explain(c command, attr *syscall.ProcAttr, err error) *startError {
	errno := errnoName(err)
	switch err {
	case syscall.ENOENT, syscall.EACCES, syscall.ENOTDIR, syscall.ELOOP, syscall.ENAMETOOLONG:
		probe := *attr
		probe.Env = nil
		null := uintptr(s.devNull)
		probe.Files = []uintptr{null, null, null}
		_, status, dirErr := s.fork(s.self, []string{s.self, "-version"}, &probe)
		if dirErr != nil {
			return &startError{nil, errnoName(dirErr), "working directory " + c.cwd + ": " + dirErr.Error()}
		}
		<-status
	}
	name := c.argv[0]
	switch err {
	case syscall.ENOENT, syscall.ENOTDIR:
		return &startError{ptr(127), errno, name + ": command not found"}
	case syscall.EACCES, syscall.ENOEXEC, syscall.EPERM, syscall.EISDIR, syscall.ETXTBSY, syscall.ELOOP, syscall.ENAMETOOLONG:
		return &startError{ptr(126), errno, name + ": cannot be executed: " + err.Error()}
	case syscall.E2BIG:
		return &startError{ptr(126), errno, name + ": arguments and environment are too long"}
	case syscall.EAGAIN:
		return &startError{nil, errno, "the sandbox's process limit is reached"}
	}
	return &startError{nil, errno, name + ": cannot be started: " + err.Error()}
}
