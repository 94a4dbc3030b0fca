package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

func socketProbe(name, how string, family, kind, protocol int, expect ...string) Probe {
	return try("network", name, how, func() error {
		fd, err := syscall.Socket(family, kind|syscall.SOCK_CLOEXEC, protocol)
		if err == nil {
			_ = syscall.Close(fd)
		}
		return err
	}, expect...)
}

var unreachable = []string{"ENETUNREACH", "EHOSTUNREACH", "EACCES", "EPERM", "EADDRNOTAVAIL", "EAFNOSUPPORT"}

func connectProbe(name, how string, kind int, address syscall.Sockaddr, family int, expect ...string) Probe {
	return try("network", name, how, func() error {
		fd, err := syscall.Socket(family, kind|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer syscall.Close(fd)
		limit := syscall.NsecToTimeval(int64(3 * time.Second))
		_ = syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_SNDTIMEO, &limit)
		if err := syscall.Connect(fd, address); err != nil {
			return err
		}
		_, err = syscall.Write(fd, []byte("x"))
		return err
	}, expect...)
}

func networkProbes() []Probe {
	tcp, udp := syscall.SOCK_STREAM, syscall.SOCK_DGRAM
	v4 := func(a, b, c, d byte, port int) syscall.Sockaddr {
		return &syscall.SockaddrInet4{Addr: [4]byte{a, b, c, d}, Port: port}
	}
	v6 := func(first, last byte, port int) syscall.Sockaddr {
		address := &syscall.SockaddrInet6{Port: port}
		address.Addr[0], address.Addr[15] = first, last
		return address
	}
	noSocket := []string{"EPERM", "EACCES", "EAFNOSUPPORT", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT", "EINVAL"}
	abstract := func(name string) syscall.Sockaddr { return &syscall.SockaddrUnix{Name: "@" + name} }
	return []Probe{
		socketProbe("raw_icmp", "a raw socket", syscall.AF_INET, syscall.SOCK_RAW, syscall.IPPROTO_ICMP, noSocket...),
		socketProbe("raw_tcp", "a raw socket", syscall.AF_INET, syscall.SOCK_RAW, syscall.IPPROTO_TCP, noSocket...),
		socketProbe("raw_v6", "a raw socket", syscall.AF_INET6, syscall.SOCK_RAW, syscall.IPPROTO_ICMPV6, noSocket...),
		socketProbe("packet", "frames of the link", syscall.AF_PACKET, syscall.SOCK_RAW, 0x0300, noSocket...),
		socketProbe("packet_dgram", "frames of the link", syscall.AF_PACKET, udp, 0x0300, noSocket...),
		socketProbe("vsock", "the hypervisor", 40, tcp, 0, noSocket...),
		socketProbe("alg", "the kernel's ciphers", 38, syscall.SOCK_SEQPACKET, 0, noSocket...),
		socketProbe("netlink_audit", "the audit system", syscall.AF_NETLINK, syscall.SOCK_RAW, 9, noSocket...),
		socketProbe("bluetooth", "radio", 31, syscall.SOCK_RAW, 0, noSocket...),
		socketProbe("xdp", "packets past the stack", 44, syscall.SOCK_RAW, 0, noSocket...),
		connectProbe("metadata", "the cloud's metadata service", tcp, v4(169, 254, 169, 254, 80), syscall.AF_INET, unreachable...),
		connectProbe("metadata_gke", "the node's metadata service", tcp, v4(169, 254, 169, 252, 988), syscall.AF_INET, unreachable...),
		connectProbe("metadata_v6", "the cloud's metadata service by IPv6", tcp, v6(0xfd, 0x54, 80), syscall.AF_INET6, unreachable...),
		connectProbe("docker_bridge", "the host on its bridge", tcp, v4(172, 17, 0, 1, 2375), syscall.AF_INET, unreachable...),
		connectProbe("private_net", "a neighbour on the network", tcp, v4(10, 0, 0, 1, 22), syscall.AF_INET, unreachable...),
		connectProbe("internet_v4", "the internet", tcp, v4(1, 1, 1, 1, 443), syscall.AF_INET, unreachable...),
		connectProbe("internet_v6", "the internet by IPv6", tcp, v6(0x20, 0x01, 443), syscall.AF_INET6, unreachable...),
		connectProbe("dns_udp", "a name server", udp, v4(8, 8, 8, 8, 53), syscall.AF_INET, unreachable...),
		connectProbe("broadcast", "everybody at once", udp, v4(255, 255, 255, 255, 67), syscall.AF_INET, unreachable...),
		connectProbe("loopback_docker", "the host's loopback", tcp, v4(127, 0, 0, 1, 2375), syscall.AF_INET, "ECONNREFUSED"),
		connectProbe("abstract_shim", "a shim's abstract socket", tcp, abstract("/containerd-shim/moby.sock"), syscall.AF_UNIX, "ECONNREFUSED", "ENOENT"),
		connectProbe("abstract_dbus", "the bus's abstract socket", tcp, abstract("/tmp/dbus-session"), syscall.AF_UNIX, "ECONNREFUSED", "ENOENT"),
		connectProbe("docker_socket", "the engine's socket", tcp, &syscall.SockaddrUnix{Name: "/var/run/docker.sock"}, syscall.AF_UNIX, "ENOENT"),
		harmless(try("network", "bind_low_port", "a privileged port", func() error {
			fd, err := syscall.Socket(syscall.AF_INET, tcp, 0)
			if err != nil {
				return err
			}
			return syscall.Bind(fd, v4(127, 0, 0, 1, 80))
		}, "EACCES", "EPERM"), "the sandbox's own loopback, which nothing else can reach"),
		try("network", "new_interface", "an address of one's own", func() error {
			fd, err := syscall.Socket(syscall.AF_INET, udp, 0)
			if err != nil {
				return err
			}
			request := make([]byte, 40)
			copy(request, "lo")
			const siocsifaddr = 0x8916
			return nilOr(raw(syscall.SYS_IOCTL, [6]uintptr{uintptr(fd), siocsifaddr, low(request)}))
		}, "EPERM", "EACCES", "ENOTTY", "EINVAL"),
	}
}

func nilOr(errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

func privilegeProbes() []Probe {
	raise := func(resource int) func() error {
		return func() error {
			var limit syscall.Rlimit
			if err := syscall.Getrlimit(resource, &limit); err != nil {
				return err
			}
			limit.Max *= 2
			limit.Cur = limit.Max
			return nilOr(raw(syscall.SYS_SETRLIMIT, [6]uintptr{uintptr(resource), uintptr(unsafe.Pointer(&limit))}))
		}
	}
	const rlimitNproc = 6
	return []Probe{
		native("privilege", "setuid_root", "become root", 105, denied, false, 0),
		native("privilege", "setresuid_root", "become root", 117, denied, false, 0, 0, 0),
		native("privilege", "setgid_root", "join root's group", 106, denied, false, 0),
		native("privilege", "setreuid_root", "become root by an older call", 113, denied, false, 0, 0),
		try("privilege", "setgroups_root", "add root's group", func() error {
			return nilOr(raw(syscall.SYS_SETGROUPS, [6]uintptr{1, low(make([]byte, 4))}))
		}, "EPERM"),
		try("privilege", "capset_all", "take every capability", func() error {
			header := []byte{0x22, 0x05, 0x08, 0x20, 0, 0, 0, 0}
			all := make([]byte, 24)
			for i := range all {
				all[i] = 0xff
			}
			return nilOr(raw(syscall.SYS_CAPSET, [6]uintptr{low(header), low(all)}))
		}, "EPERM"),
		native("privilege", "ambient_raise", "a capability for every child", 157, errnos("EPERM", "EINVAL"), false, 47, 2, 21, 0, 0),
		native("privilege", "no_new_privs_off", "allow setuid programs again", 157, errnos("EINVAL", "EPERM"), false, 38, 0, 0, 0, 0),
		native("privilege", "mm_exe_file", "pretend to be another program", 157, errnos("EPERM", "EINVAL", "EBADF", "EACCES"), false, 35, 13, 0, 0, 0),
		harmless(native("privilege", "priority_up", "run before the others", 141, errnos("EACCES", "EPERM"), false, 0, 0, minus(20)),
			"the sentry notes the number; niceness has no effect in it, and the host's threads keep theirs"),
		native("privilege", "realtime", "run before everything", 144, denied, false, 0, 1, 0),
		try("privilege", "raise_nproc", "more processes", raise(rlimitNproc), "EPERM"),
		try("privilege", "raise_nofile", "more descriptors", raise(syscall.RLIMIT_NOFILE), "EPERM"),
		try("privilege", "raise_fsize", "larger files", raise(syscall.RLIMIT_FSIZE), "EPERM"),
		try("privilege", "limits_of_pid1", "change PID 1's limits", func() error {
			limit := low(make([]byte, 16))
			return nilOr(raw(syscall.SYS_PRLIMIT64, [6]uintptr{1, syscall.RLIMIT_NOFILE, limit, 0}))
		}, "EPERM"),
		try("privilege", "setuid_program", "a setuid program of the image", setuidProgram, "EPERM"),
	}
}

// setuidProgram runs every setuid program's equivalent of `id`: with no-new-privileges none gives another user.
func setuidProgram() error {
	for _, path := range []string{"/bin/su", "/usr/bin/su", "/usr/bin/passwd", "/usr/bin/newgrp", "/usr/bin/mount"} {
		found, err := os.Stat(path)
		if err != nil || found.Mode()&os.ModeSetuid == 0 {
			continue
		}
		process, err := os.StartProcess(path, []string{path, "--help"}, &os.ProcAttr{})
		if err != nil {
			continue
		}
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", process.Pid))
		_, _ = process.Wait()
		var uid, effective int
		for _, row := range splitLines(string(text)) {
			if n, _ := fmt.Sscanf(row, "Uid: %d %d", &uid, &effective); n == 2 && effective == 0 {
				return nil
			}
		}
	}
	return syscall.EPERM
}

func signalProbes() []Probe {
	var probes []Probe
	for _, number := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGTERM, syscall.SIGSEGV, syscall.SIGCONT, 0} {
		probes = append(probes, native("signals", "kill_pid1_"+strconv.Itoa(int(number)), "signal PID 1", 62, denied, false, 1, uintptr(number)))
	}
	info := func() uintptr {
		data := make([]byte, 128)
		data[0] = byte(syscall.SIGKILL)
		data[8] = 0xff // SI_QUEUE, -1
		data[9], data[10], data[11] = 0xff, 0xff, 0xff
		return low(data)
	}
	queue := native("signals", "rt_sigqueueinfo_pid1", "signal PID 1 by another call", 129, denied, false)
	queue.Run = func() (string, string) { return told(raw(129, [6]uintptr{1, uintptr(syscall.SIGKILL), info()}), "") }
	thread := native("signals", "rt_tgsigqueueinfo_pid1", "signal PID 1's thread", 297, denied, false)
	thread.Run = func() (string, string) { return told(raw(297, [6]uintptr{1, 1, uintptr(syscall.SIGKILL), info()}), "") }
	owner := try("signals", "fcntl_setown_pid1", "let a pipe signal PID 1", func() error {
		var ends [2]int
		if err := syscall.Pipe(ends[:]); err != nil {
			return err
		}
		// Setting an owner is allowed to anyone; the signal itself must not arrive. PID 1's answer is the check.
		const setOwner, setSignal = 8, 10
		_, _, _ = syscall.RawSyscall(syscall.SYS_FCNTL, uintptr(ends[0]), setOwner, 1)
		_, _, _ = syscall.RawSyscall(syscall.SYS_FCNTL, uintptr(ends[0]), setSignal, uintptr(syscall.SIGKILL))
		_, _, _ = syscall.RawSyscall(syscall.SYS_FCNTL, uintptr(ends[0]), syscall.F_SETFL, syscall.O_ASYNC)
		_, _ = syscall.Write(ends[1], []byte("x"))
		if _, err := os.Stat("/proc/1"); err != nil {
			return nil
		}
		return syscall.EPERM
	}, "EPERM")
	return append(probes,
		native("signals", "tkill_pid1", "signal PID 1's thread", 200, denied, false, 1, uintptr(syscall.SIGKILL)),
		native("signals", "tgkill_pid1", "signal PID 1's thread", 234, denied, false, 1, 1, uintptr(syscall.SIGKILL)),
		native("signals", "pidfd_send_signal", "signal by descriptor", 424, errnos("EPERM", "ENOSYS"), false, 0, 9, 0, 0),
		queue, thread, owner,
	)
}

// descriptorProbes looks at what a process of the agent inherits: three pipes and nothing else.
func descriptorProbes() []Probe {
	inherited := func() ([]string, error) {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			return nil, err
		}
		var extra []string
		for _, entry := range entries {
			number, _ := strconv.Atoi(entry.Name())
			target, _ := os.Readlink(filepath.Join("/proc/self/fd", entry.Name()))
			ours := target == "" || target == "/proc/self/fd" || target == fmt.Sprintf("/proc/%d/fd", os.Getpid()) ||
				len(target) > 10 && target[:10] == "anon_inode"
			if number > 2 && !ours {
				extra = append(extra, entry.Name()+" "+target)
			}
		}
		return extra, nil
	}
	return []Probe{{
		Name: "descriptors.inherited", Category: "descriptors", How: "a descriptor that leads out", ABI: "64",
		Expect: []string{"EBADF"},
		Run: func() (string, string) {
			extra, err := inherited()
			if err != nil {
				return toldError(err, "")
			}
			if len(extra) > 0 {
				return succeeded, fmt.Sprint(extra)
			}
			return "EBADF", "only standard input, output and error"
		},
	}, open("descriptors", "reopen_stdin_of_pid1", "PID 1's input by way of /proc", "/proc/1/fd/0", syscall.O_RDONLY, "EACCES", "EPERM", "ENOENT")}
}

func splitLines(text string) []string {
	var rows []string
	start := 0
	for i := range text {
		if text[i] == '\n' {
			rows = append(rows, text[start:i])
			start = i + 1
		}
	}
	return append(rows, text[start:])
}
