package main

// Signals to the agent's processes. PID 1 lacks CAP_KILL on purpose; one locked thread takes effective uid 1000 while
// its real and saved uid stay 0: it may signal uid 1000, but uid 1000 can neither signal it nor use up its nproc, so a
// fork bomb cannot keep us from ending it (a helper process of uid 1000 could not even start its threads).

import (
	"runtime"
	"sort"
	"syscall"
	"time"
)

const (
	agentUID = 1000
	agentGID = 1000
	// killDeadline bounds the wait for processes to be gone after SIGKILL.
	killDeadline = 10 * time.Second
	// freezeDeadline bounds the hunt for members that change groups faster than they are seen.
	freezeDeadline = 2 * time.Second
)

type killRequest struct {
	pid  int
	sig  syscall.Signal
	done chan error
}

type killer struct{ requests chan killRequest }

func newKiller() *killer {
	k := &killer{requests: make(chan killRequest)}
	go k.run()
	return k
}

func (k *killer) run() {
	runtime.LockOSThread() // never unlocked: this thread's credentials differ from the rest
	if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, 0, agentUID, 0); e != 0 {
		logf("setresuid(0, %d, 0) of the killer thread: %v", agentUID, e)
	}
	for r := range k.requests {
		r.done <- syscall.Kill(r.pid, r.sig)
	}
}

func (k *killer) kill(pid int, sig syscall.Signal) error {
	done := make(chan error, 1)
	k.requests <- killRequest{pid, sig, done}
	return <-done
}

// all signals every process but PID 1; one atomic call, so nothing can fork past it.
func (k *killer) all(sig syscall.Signal) {
	if err := k.kill(-1, sig); err != nil && err != syscall.ESRCH {
		logf("kill(-1, %d): %v", int(sig), err)
	}
}

// lineage grows the set of processes that descend from its roots, by parent, session and process group.
type lineage struct {
	known    map[int]uint64 // pid to start time
	sessions map[int]bool
	groups   map[int]bool
	skip     map[int]bool // our own helpers
}

func newLineage(leader int, more []int, skip map[int]bool) *lineage {
	l := &lineage{map[int]uint64{}, map[int]bool{leader: true}, map[int]bool{leader: true}, skip}
	for _, pid := range more {
		if pid > 1 {
			l.known[pid] = 0 // start time learnt at the first scan
		}
	}
	return l
}

func (l *lineage) add(p proc) {
	l.known[p.pid] = p.start
	if p.session > 1 {
		l.sessions[p.session] = true
	}
	if p.group > 1 {
		l.groups[p.group] = true
	}
}

// members returns the living members among procs and remembers what they reveal.
func (l *lineage) members(procs []proc) []int {
	found := map[int]bool{}
	started := map[int]uint64{}
	for _, p := range procs {
		started[p.pid] = p.start
	}
	is := func(pid int, start uint64) bool { // a known pid counts only while it is still the same process
		known, ok := l.known[pid]
		return ok && pid > 1 && (known == 0 || known == start)
	}
	for grown := true; grown; {
		grown = false
		for _, p := range procs {
			if p.pid <= 1 || found[p.pid] || l.skip[p.pid] {
				continue
			}
			if is(p.pid, p.start) || is(p.parent, started[p.parent]) || l.sessions[p.session] || l.groups[p.group] {
				l.add(p)
				found[p.pid], grown = true, true
			}
		}
	}
	var live []int
	for _, p := range procs {
		if found[p.pid] && !p.dead {
			live = append(live, p.pid)
		}
	}
	sort.Ints(live)
	return live
}

// signalGroups sends sig to process groups. By group, not by process: a fork bomb starves our scans, and only a group's
// signal reaches what it forks meanwhile.
func (k *killer) signalGroups(groups map[int]bool, sig syscall.Signal) {
	for g := range groups {
		if err := k.kill(-g, sig); err != nil && err != syscall.ESRCH {
			logf("kill(-%d, %d): %v", g, int(sig), err)
		}
	}
}

// strike signals every living member once, and says how many there were.
func (k *killer) strike(l *lineage, sig syscall.Signal) int {
	live := l.members(scanProcesses())
	k.signalGroups(l.groups, sig)
	return len(live)
}

// freeze stops the lineage from the leader's group outwards, so that nobody loses his parent, and with it his place in
// the lineage, before he has been seen.
func (k *killer) freeze(l *lineage) {
	frozen := map[int]bool{}
	for deadline := time.Now().Add(freezeDeadline); ; {
		fresh := map[int]bool{}
		for g := range l.groups {
			if !frozen[g] {
				fresh[g], frozen[g] = true, true
			}
		}
		if len(fresh) == 0 || time.Now().After(deadline) {
			return
		}
		k.signalGroups(fresh, syscall.SIGSTOP)
		l.members(scanProcesses())
	}
}

// exterminate kills the lineage, rescanning until two scans in a row find nothing. n counts those that the first
// SIGKILL did not end at once; ok=false: some outlive the deadline.
func (k *killer) exterminate(l *lineage) (n int, ok bool) {
	k.freeze(l)
	k.signalGroups(l.groups, syscall.SIGKILL)
	pause, empty := time.Millisecond, 0
	for deadline := time.Now().Add(killDeadline); time.Now().Before(deadline); {
		live := k.strike(l, syscall.SIGKILL)
		n = max(n, live)
		if live > 0 {
			empty = 0
			time.Sleep(pause) // a killed process dies on its own schedule, and not all are our children
			pause = min(2*pause, 50*time.Millisecond)
		} else if empty++; empty == 2 {
			return n, true
		}
	}
	return n, false
}
