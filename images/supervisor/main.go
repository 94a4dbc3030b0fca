// Command gauntlet-supervisor is PID 1 of every sandbox. It owns the framed protocol on stdin/stdout, starts and ends
// the agent's commands as uid 1000, moves files for it through workers of that uid, and reaps orphans. It holds no
// policy: limits, timers of the attempt and records belong to the daemon outside.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"
)

const (
	defaultWorkspace = "/workspace"
	// dockerStopGrace is what a SIGTERM from outside (docker stop) leaves the agent's processes.
	dockerStopGrace = 5 * time.Second
	prSetDumpable   = 4
	// maxProcs keeps the threads of PID 1 few on big machines: they share root's nproc with the first processes of
	// commands, and the CPUs with the agent.
	maxProcs = 2
)

// logf writes one line to stderr, which the daemon keeps for diagnosis. Never agent data.
func logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "gauntlet-supervisor: "+format+"\n", args...)
}

func undumpable() {
	if _, _, e := syscall.RawSyscall(syscall.SYS_PRCTL, prSetDumpable, 0, 0); e != 0 {
		logf("prctl(PR_SET_DUMPABLE): %v", e)
	}
}

// init keeps the main goroutine on the first thread, so that the killer's changed credentials never land there: the
// first thread's are what /proc/1 shows and what a parent-death signal hangs on.
func init() { runtime.LockOSThread() }

func main() {
	undumpable()
	if len(os.Args) > 1 && os.Args[1] == fileWorkerMode {
		os.Exit(fileWorker())
	}
	workspace := flag.String("workspace", defaultWorkspace, "directory that relative paths start from")
	version := flag.Bool("version", false, "print the protocol version")
	flag.Parse()
	if *version {
		fmt.Printf("gauntlet-supervisor protocol %d\n", protocolVersion)
		return
	}
	if os.Getpid() != 1 {
		// KILL_ALL is kill(-1): outside a PID namespace of its own it would end the machine's processes.
		logf("refusing to run as pid %d: start it as PID 1 of a container or under `unshare --pid --fork`", os.Getpid())
		os.Exit(2)
	}
	runtime.GOMAXPROCS(maxProcs)
	debug.SetGCPercent(50)
	debug.SetMemoryLimit(96 << 20)
	syscall.Umask(0o022)
	self, err := os.Executable()
	if err != nil {
		logf("own path: %v", err)
		os.Exit(2)
	}
	server, err := newServer(self, *workspace)
	if err != nil {
		logf("%v", err)
		os.Exit(2)
	}
	terms := make(chan os.Signal, 1)
	signal.Notify(terms, syscall.SIGTERM, syscall.SIGINT)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE, syscall.SIGHUP) // a vanished peer must not end PID 1
	go func() {
		<-terms
		server.stop(dockerStopGrace)
	}()
	server.serve(0)
}
