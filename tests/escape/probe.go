package main

import (
	"fmt"
	"os"
	"runtime"
	"sort"
	"syscall"
	"time"
	"unsafe"
)

// succeeded is what a probe says whose attempt was not refused.
const succeeded = "SUCCEEDED"

// Probe is one attempt. Expect names errnos, signals (SIGSYS) or, where success is harmless, SUCCEEDED with the
// reason in Why. Report says whether the platform must report the attempt.
type Probe struct {
	Name     string
	Category string
	How      string
	ABI      string
	Expect   []string
	Report   bool
	Why      string
	Run      func() (got, detail string)
	RunIn    func() (got, detail string, pid int) // instead of Run, where another process makes the attempt
}

func allProbes() []Probe {
	var all []Probe
	for _, some := range [][]Probe{
		timeProbes(), mountProbes(), tracingProbes(), namespaceProbes(), kernelProbes(), deviceProbes(),
		procProbes(), networkProbes(), privilegeProbes(), signalProbes(), fileProbes(), hiddenProbes(),
		descriptorProbes(),
	} {
		all = append(all, some...)
	}
	seen := map[string]bool{}
	for _, probe := range all {
		if seen[probe.Name] {
			panic("two probes are called " + probe.Name)
		}
		seen[probe.Name] = true
	}
	sort.SliceStable(all, func(a, b int) bool { return all[a].Name < all[b].Name })
	return all
}

// told turns an errno into a probe's answer.
func told(errno syscall.Errno, detail string) (string, string) {
	if errno == 0 {
		return succeeded, detail
	}
	return errnoName(errno), detail
}

// toldError is told for the standard library's wrappers.
func toldError(err error, detail string) (string, string) {
	if err == nil {
		return succeeded, detail
	}
	if errno, ok := err.(syscall.Errno); ok {
		return told(errno, detail)
	}
	return "BROKEN", err.Error()
}

var errnoNames = map[syscall.Errno]string{
	syscall.EPERM: "EPERM", syscall.ENOENT: "ENOENT", syscall.ESRCH: "ESRCH", syscall.EBADF: "EBADF",
	syscall.EACCES: "EACCES", syscall.EFAULT: "EFAULT", syscall.EBUSY: "EBUSY", syscall.EEXIST: "EEXIST",
	syscall.EXDEV: "EXDEV", syscall.ENODEV: "ENODEV", syscall.ENOTDIR: "ENOTDIR", syscall.EISDIR: "EISDIR",
	syscall.EINVAL: "EINVAL", syscall.EROFS: "EROFS", syscall.ENOSYS: "ENOSYS", syscall.EOPNOTSUPP: "EOPNOTSUPP",
	syscall.ENXIO: "ENXIO", syscall.EIO: "EIO", syscall.ENOTTY: "ENOTTY", syscall.ENOSPC: "ENOSPC",
	syscall.EAFNOSUPPORT: "EAFNOSUPPORT", syscall.EPROTONOSUPPORT: "EPROTONOSUPPORT",
	syscall.ESOCKTNOSUPPORT: "ESOCKTNOSUPPORT", syscall.ENETUNREACH: "ENETUNREACH",
	syscall.EHOSTUNREACH: "EHOSTUNREACH", syscall.ECONNREFUSED: "ECONNREFUSED", syscall.ELOOP: "ELOOP",
	syscall.ENOMEM: "ENOMEM", syscall.EAGAIN: "EAGAIN", syscall.ETIMEDOUT: "ETIMEDOUT", syscall.ECHILD: "ECHILD",
	syscall.ENOTSOCK: "ENOTSOCK", syscall.EMFILE: "EMFILE", syscall.ERANGE: "ERANGE",
	syscall.EADDRNOTAVAIL: "EADDRNOTAVAIL", syscall.EMLINK: "EMLINK", syscall.ENOTEMPTY: "ENOTEMPTY",
	syscall.EINTR: "EINTR", syscall.ENOPROTOOPT: "ENOPROTOOPT",
}

func errnoName(errno syscall.Errno) string {
	if name, known := errnoNames[errno]; known {
		return name
	}
	return fmt.Sprintf("E%d", int(errno))
}

func signalName(number syscall.Signal) string {
	switch number {
	case syscall.SIGSYS:
		return "SIGSYS"
	case syscall.SIGSEGV:
		return "SIGSEGV"
	case syscall.SIGKILL:
		return "SIGKILL"
	}
	return fmt.Sprintf("SIG%d", int(number))
}

// defaultFaults gives back to the kernel the signals that Go's runtime catches, so that a process ended by the
// filter or by a fault ends by that signal and not by a Go panic.
func defaultFaults() {
	runtime.LockOSThread()
	var action [32]byte // struct sigaction: SIG_DFL, no flags, no restorer, empty mask
	for _, number := range []syscall.Signal{syscall.SIGSYS, syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGILL, syscall.SIGTRAP} {
		_, _, errno := syscall.RawSyscall6(
			syscall.SYS_RT_SIGACTION, uintptr(number), uintptr(unsafe.Pointer(&action[0])), 0, 8, 0, 0)
		if errno != 0 {
			panic(errno)
		}
	}
}

// inFork makes a call in a forked process with one thread: its end, its errno, and its pid.
func inFork(number, first, second uintptr) (string, string, int) {
	child, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno == 0 && child == 0 {
		_, _, answer := syscall.RawSyscall(number, first, second, 0)
		for {
			syscall.RawSyscall(syscall.SYS_EXIT_GROUP, uintptr(answer), 0, 0)
		}
	}
	if errno != 0 {
		return "BROKEN", errno.Error(), 0
	}
	var status syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(int(child), &status, 0, nil); err != syscall.EINTR {
			break
		}
	}
	if status.Signaled() {
		return signalName(status.Signal()), "", int(child)
	}
	got, detail := told(syscall.Errno(status.ExitStatus()), "")
	return got, detail, int(child)
}

// inThread makes a call in a thread of its own and says whether that thread lived to see an answer.
func inThread(number, first, second uintptr) (string, string) {
	threads := make(chan int, 1)
	answers := make(chan syscall.Errno, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: a thread that comes back ends with its goroutine
		threads <- syscall.Gettid()
		_, _, errno := syscall.RawSyscall(number, first, second, 0)
		answers <- errno
	}()
	task := fmt.Sprintf("/proc/self/task/%d", <-threads)
	for {
		select {
		case errno := <-answers:
			return told(errno, "")
		case <-time.After(20 * time.Millisecond):
			if _, err := os.Stat(task); os.IsNotExist(err) {
				return "THREAD_KILLED", ""
			}
		}
	}
}
