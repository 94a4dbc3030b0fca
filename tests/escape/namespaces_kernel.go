package main

import (
	"syscall"
)

const (
	cloneNewNS   = 0x00020000
	cloneNewUser = 0x10000000
	cloneNewPID  = 0x20000000
	cloneNewNet  = 0x40000000
	cloneNewUTS  = 0x04000000
	cloneNewIPC  = 0x08000000
	cloneNewCG   = 0x02000000
)

func rawSelf() (uintptr, uintptr, syscall.Errno) {
	return syscall.RawSyscall(syscall.SYS_GETPID, 0, 0, 0)
}

// cloneWith forks with flags; a child that comes to be ends at once.
func cloneWith(flags uintptr) syscall.Errno {
	child, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, flags|uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno == 0 && child == 0 {
		for {
			syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 77, 0, 0)
		}
	}
	return errno
}

func namespaceProbes() []Probe {
	var probes []Probe
	for _, one := range []struct {
		name string
		flag uintptr
	}{
		{"user", cloneNewUser}, {"mount", cloneNewNS}, {"pid", cloneNewPID}, {"net", cloneNewNet},
		{"uts", cloneNewUTS}, {"ipc", cloneNewIPC}, {"cgroup", cloneNewCG}, {"user_mount_pid_net", cloneNewUser | cloneNewNS | cloneNewPID | cloneNewNet},
	} {
		unshare := native("namespaces", "unshare_"+one.name, "leave a namespace", 272, denied, false, one.flag)
		cloned := native("namespaces", "clone_"+one.name, "a child in a new namespace", 56, denied, false)
		cloned.Run = func() (string, string) { return told(cloneWith(one.flag), "") }
		probes = append(probes, unshare, cloned)
	}
	high := native("namespaces", "clone_user_high_bits", "clone's flags with bits above the filtered word", 56, denied, false)
	high.Run = func() (string, string) { return told(cloneWith(cloneNewUser|1<<40), "") }
	clone3 := native("namespaces", "clone3_user", "clone3, whose flags no filter can read", 435, errnos("ENOSYS"), false)
	clone3.Run = func() (string, string) {
		arguments := make([]byte, 88)
		arguments[3] = cloneNewUser >> 24
		arguments[32] = byte(syscall.SIGCHLD)
		return told(raw(435, [6]uintptr{low(arguments), 88}), "")
	}
	setns := native("namespaces", "setns_own", "enter a namespace by descriptor", 308, denied, false, 0, cloneNewNet)
	unshare32 := call{name: "unshare_user", nr64: 272, nr32: 310, arguments: args(cloneNewUser)}
	probes = append(probes, high, clone3, setns)
	probes = append(probes, everyABI("namespaces", "leave a namespace by another ABI", unshare32,
		expectations{int80: notServed, x32: notServed}, false)...)
	clone32 := call{name: "clone_user", nr64: 56, nr32: 120, arguments: args(cloneNewUser | uintptr(syscall.SIGCHLD))}
	return append(probes, everyABI("namespaces", "a child in a new namespace by another ABI", clone32,
		expectations{int80: notServed, x32: notServed}, false)...)
}

func kernelProbes() []Probe {
	type one struct {
		name, how string
		number    int
		nr32      int
		arguments []uintptr
	}
	var probes []Probe
	for _, each := range []one{
		{"init_module", "load a kernel module", 175, 128, []uintptr{0, 0, 0}},
		{"finit_module", "load a kernel module from a file", 313, 350, []uintptr{0, 0, 0}},
		{"delete_module", "remove a kernel module", 176, 129, []uintptr{0, 0}},
		{"kexec_load", "replace the kernel", 246, 283, []uintptr{0, 0, 0, 0}},
		{"kexec_file_load", "replace the kernel from files", 320, 0, []uintptr{0, 0, 0, 0, 0}},
		{"reboot", "restart the machine", 169, 88, []uintptr{0xfee1dead, 672274793, 0x1234567, 0}},
		{"swapon", "add swap", 167, 87, []uintptr{0, 0}},
		{"swapoff", "remove swap", 168, 115, []uintptr{0}},
		{"acct", "process accounting", 163, 51, []uintptr{0}},
		{"quotactl", "change quotas", 179, 131, []uintptr{0, 0, 0, 0}},
		{"sethostname", "change the host's name", 170, 74, []uintptr{0, 0}},
		{"setdomainname", "change the domain's name", 171, 121, []uintptr{0, 0}},
		{"iopl", "raw I/O ports", 172, 110, []uintptr{3}},
		{"ioperm", "raw I/O ports", 173, 101, []uintptr{0, 8, 1}},
		{"syslog", "the kernel's log", 103, 103, []uintptr{3, 0, 0}},
		{"vhangup", "hang up the terminal", 153, 111, nil},
		{"personality", "weaken address randomisation", 135, 136, []uintptr{0x0040000}},
		{"bpf", "load a BPF program", 321, 357, []uintptr{0, 0, 0}},
		{"perf_event_open", "performance counters", 298, 336, []uintptr{0, 0, minus(1), minus(1), 0}},
		{"io_uring_setup", "system calls by ring", 425, 425, []uintptr{8, 0}},
		{"io_uring_enter", "system calls by ring", 426, 426, []uintptr{0, 0, 0, 0, 0}},
		{"io_uring_register", "system calls by ring", 427, 427, []uintptr{0, 0, 0, 0}},
		{"userfaultfd", "fault handling in user space", 323, 374, []uintptr{0}},
		{"add_key", "the kernel's keyrings", 248, 286, []uintptr{0, 0, 0, 0, minus(3)}},
		{"request_key", "the kernel's keyrings", 249, 287, []uintptr{0, 0, 0, 0}},
		{"keyctl", "the kernel's keyrings", 250, 288, []uintptr{0, minus(3), 0}},
		{"open_by_handle_at", "a file by its handle", 304, 342, []uintptr{minus(100), 0, 0}},
		{"name_to_handle_at", "a file's handle", 303, 341, []uintptr{minus(100), 0, 0, 0, 0}},
		{"lookup_dcookie", "a path by its kernel cookie", 212, 253, []uintptr{0, 0, 0}},
		{"fanotify_init", "watch the whole mount", 300, 338, []uintptr{0, 0}},
		{"seccomp", "a filter of one's own", 317, 354, []uintptr{1, 0, 0}},
		{"modify_ldt", "segments of one's own", 154, 123, []uintptr{0, 0, 0}},
		{"move_pages", "another process's pages", 279, 317, []uintptr{1, 0, 0, 0, 0}},
		{"nfsservctl", "a call that no kernel has any more", 180, 169, nil},
		{"memfd_secret", "memory hidden from the kernel", 447, 447, []uintptr{0}},
		{"getpid_by_the_gate", "the 32-bit gate at all, by a call that is harmless", 0, 20, nil},
		{"beyond_the_table", "a number that no ABI has", 9999, 9999, nil},
	} {
		expect := denied
		if each.name == "beyond_the_table" {
			expect = errnos("EPERM", "ENOSYS")
		}
		what := call{name: each.name, nr64: each.number, nr32: each.nr32, arguments: args(each.arguments...)}
		others := expectations{native: expect, x32: notServed}
		if each.number == 0 {
			others = expectations{}
		}
		if each.nr32 != 0 {
			others.int80 = notServed
		}
		probes = append(probes, everyABI("kernel", each.how, what, others, false)...)
	}
	return probes
}
