package main

import "syscall"

// The calls that the specification names: setting clocks, mounting, tracing. Those of the 64-bit ABI must be reported.

var (
	denied = errnos("EPERM")
	// The filter refuses every call of the 32-bit gate and of x32, whatever its number; nothing sees such a call, so
	// none of them is reported.
	notServed = denied
)

func timeProbes() []Probe {
	timespec := func() uintptr { return low(make([]byte, 16)) }
	everywhere := expectations{native: denied, int80: notServed, x32: notServed}
	var probes []Probe
	for _, one := range []call{
		{name: "clock_settime", nr64: 227, nr32: 264, arguments: func() [6]uintptr { return [6]uintptr{0, timespec()} }},
		{name: "settimeofday", nr64: 164, nr32: 79, arguments: func() [6]uintptr { return [6]uintptr{timespec(), 0} }},
		{name: "adjtimex", nr64: 159, nr32: 124, arguments: func() [6]uintptr {
			change := make([]byte, 256)
			change[0] = 1 // ADJ_OFFSET
			return [6]uintptr{low(change)}
		}},
	} {
		probes = append(probes, everyABI("time", "set or adjust the clock", one, everywhere, true)...)
	}
	clockAdjtime := call{name: "clock_adjtime", nr64: 305, nr32: 343, arguments: func() [6]uintptr {
		return [6]uintptr{0, low(make([]byte, 256))}
	}}
	probes = append(probes, everyABI("time", "adjust the clock by its newer name", clockAdjtime,
		expectations{native: denied, int80: notServed}, false)...)
	stime := call{name: "stime", nr32: 25, arguments: func() [6]uintptr { return [6]uintptr{timespec()} }}
	return append(probes, everyABI("time", "a call that only the 32-bit ABI has", stime,
		expectations{int80: notServed}, false)...)
}

func mountProbes() []Probe {
	everywhere := expectations{native: denied, int80: notServed, x32: notServed}
	var probes []Probe
	for _, one := range []call{
		{name: "mount", nr64: 165, nr32: 21, arguments: func() [6]uintptr {
			return [6]uintptr{lowString("none"), lowString("/workspace/submissions"), lowString("tmpfs"), 0, 0}
		}},
		{name: "umount2", nr64: 166, nr32: 52, arguments: func() [6]uintptr {
			return [6]uintptr{lowString("/workspace/tools"), 2}
		}},
		{name: "pivot_root", nr64: 155, nr32: 217, arguments: func() [6]uintptr {
			return [6]uintptr{lowString("/workspace/submissions"), lowString("/workspace/submissions")}
		}},
	} {
		probes = append(probes, everyABI("mount", "change what is mounted", one, everywhere, true)...)
	}
	bind := native("mount", "bind_over_tools", "bind a directory of ours over the tools", 165, denied, true)
	bind.Run = func() (string, string) {
		const msBind = 4096
		return told(raw(165, [6]uintptr{
			lowString("/workspace/submissions"), lowString("/workspace/tools"), lowString("none"), msBind, 0,
		}), "")
	}
	remount := native("mount", "remount_tools_writable", "remount the tools read-write", 165, denied, true)
	remount.Run = func() (string, string) {
		const msRemount, msBind = 32, 4096
		return told(raw(165, [6]uintptr{
			lowString("none"), lowString("/workspace/tools"), lowString("none"), msRemount | msBind, 0,
		}), "")
	}
	probes = append(probes, bind, remount)
	for name, number := range map[string]int{
		"fsopen": 430, "fsmount": 432, "open_tree": 428, "move_mount": 429, "fspick": 433, "fsconfig": 431,
		"mount_setattr": 442,
	} {
		probes = append(probes, native("mount", name, "the newer mount interface", number, denied, false,
			minus(100), 0, 0, 0, 0))
	}
	chroot := call{name: "chroot", nr64: 161, nr32: 61, arguments: func() [6]uintptr {
		return [6]uintptr{lowString("/workspace/submissions")}
	}}
	return append(probes, everyABI("mount", "change the root directory", chroot, everywhere, false)...)
}

// tracingProbes try ptrace from a process with one thread, which the filter kills whole, and from one thread of
// many: the filter kills that thread only.
func tracingProbes() []Probe {
	var probes []Probe
	for _, one := range []struct {
		name         string
		request, pid uintptr
	}{{"traceme", 0, 0}, {"attach_pid1", 16, 1}, {"seize_pid1", 0x4206, 1}} {
		probes = append(probes,
			Probe{
				Name: "tracing.ptrace_" + one.name + ".64", Category: "tracing", How: "trace a process", ABI: "64",
				Expect: errnos("SIGSYS"), Report: true,
				RunIn: func() (string, string, int) { return inFork(syscall.SYS_PTRACE, one.request, one.pid) },
			},
			Probe{
				Name: "tracing.ptrace_" + one.name + "_by_thread.64", Category: "tracing", How: "trace from one thread of many",
				ABI: "64", Expect: errnos("THREAD_KILLED"),
				Why: "the process lives on, and the sentry's trace tells no single thread's death: denied but not reported",
				Run: func() (string, string) { return inThread(syscall.SYS_PTRACE, one.request, one.pid) },
			})
		what := call{name: "ptrace_" + one.name, nr64: syscall.SYS_PTRACE, nr32: 26, x32: 521, arguments: args(one.request, one.pid)}
		probes = append(probes, everyABI("tracing", "trace a process", what,
			expectations{int80: notServed, x32: notServed}, false)...)
	}
	vector := func() uintptr { return low(make([]byte, 64)) }
	for _, one := range []struct {
		name   string
		number int
		pid    uintptr
	}{
		{"process_vm_readv_pid1", 310, 1}, {"process_vm_writev_pid1", 311, 1}, {"process_vm_readv_self", 310, 0},
	} {
		probe := native("tracing", one.name, "another process's memory", one.number, denied, false)
		probe.Run = func() (string, string) {
			pid := one.pid
			if pid == 0 {
				pid, _, _ = rawSelf()
			}
			return told(raw(uintptr(one.number), [6]uintptr{pid, vector(), 1, vector(), 1, 0}), "")
		}
		probes = append(probes, probe)
	}
	return append(probes,
		native("tracing", "pidfd_open_pid1", "a handle of PID 1", 434, denied, false, 1, 0),
		native("tracing", "pidfd_getfd", "a descriptor out of another process", 438, denied, false, 0, 0, 0),
		native("tracing", "kcmp_pid1", "compare kernel objects with PID 1", 312, denied, false, 1, 1, 0, 0, 0),
		native("tracing", "process_madvise", "advise another process's memory", 440, denied, false, 0, 0, 0, 0, 0),
	)
}
