package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// opened tries to open a path and closes it again.
func opened(path string, flags int) (string, string) {
	fd, err := syscall.Open(path, flags|syscall.O_CLOEXEC, 0o600)
	if err == nil {
		_ = syscall.Close(fd)
	}
	return toldError(err, path)
}

func open(category, name, how, path string, flags int, expect ...string) Probe {
	return Probe{
		Name: category + "." + name, Category: category, How: how, ABI: "64", Expect: expect,
		Run: func() (string, string) { return opened(path, flags) },
	}
}

func try(category, name, how string, run func() error, expect ...string) Probe {
	return Probe{
		Name: category + "." + name, Category: category, How: how, ABI: "64", Expect: expect,
		Run: func() (string, string) { return toldError(run(), "") },
	}
}

func deviceProbes() []Probe {
	const absent = "ENOENT"
	made := func(mode uint32, device int) func() error {
		return func() error { return syscall.Mknod("/workspace/submissions/device", mode|0o600, device) }
	}
	probes := []Probe{
		try("devices", "mknod_char", "a node for /dev/mem", made(syscall.S_IFCHR, 1<<8|1), "EPERM"),
		try("devices", "mknod_block", "a node for a disk", made(syscall.S_IFBLK, 8<<8), "EPERM"),
		native("devices", "mknodat_char", "a node by the newer call", 259, denied, false, minus(100), 0, syscall.S_IFCHR, 257),
	}
	for _, name := range []string{
		"mem", "kmem", "port", "kmsg", "kvm", "sda", "vda", "loop-control", "loop0", "mapper/control", "vhost-net",
		"nvidiactl", "cuse", "userfaultfd", "mcelog", "snapshot",
	} {
		flags := syscall.O_RDWR
		probes = append(probes, open("devices", "open_"+strings.NewReplacer("/", "_", "-", "_").Replace(name),
			"a device of the host", "/dev/"+name, flags, absent, "EACCES", "EPERM"))
	}
	return append(probes,
		harmless(open("devices", "open_fuse", "the FUSE device", "/dev/fuse", syscall.O_RDWR, absent),
			"the sentry's own device; without mount(2), which is refused, it does nothing"),
		harmless(open("devices", "open_tun", "the tunnel device", "/dev/net/tun", syscall.O_RDWR, absent),
			"the sentry's own device; making an interface with it is refused (next probe)"),
		try("devices", "tun_interface", "an interface of one's own", func() error {
			fd, err := syscall.Open("/dev/net/tun", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			request := make([]byte, 40)
			copy(request, "tun0")
			request[16] = 1 // IFF_TUN
			const tunSetIff = 0x400454ca
			return nilOr(raw(syscall.SYS_IOCTL, [6]uintptr{uintptr(fd), tunSetIff, low(request)}))
		}, "EPERM", "ENOENT"),
	)
}

// harmless also accepts success, and says why.
func harmless(probe Probe, why string) Probe {
	probe.Expect, probe.Why = append(probe.Expect, succeeded), why
	return probe
}

func procProbes() []Probe {
	refused := []string{"EACCES", "EPERM", "ENOENT", "EROFS", "ESRCH"}
	var probes []Probe
	for name, path := range map[string]string{
		"core_pattern": "/proc/sys/kernel/core_pattern", "sysrq": "/proc/sysrq-trigger",
		"hostname": "/proc/sys/kernel/hostname", "overcommit": "/proc/sys/vm/overcommit_memory",
		"modprobe": "/proc/sys/kernel/modprobe", "ip_forward": "/proc/sys/net/ipv4/ip_forward",
		"yama": "/proc/sys/kernel/yama/ptrace_scope", "binfmt": "/proc/sys/fs/binfmt_misc/register",
		"uevent_helper": "/sys/kernel/uevent_helper", "release_agent": "/sys/fs/cgroup/release_agent",
		"cgroup_procs": "/sys/fs/cgroup/memory/cgroup.procs", "memory_limit": "/sys/fs/cgroup/memory/memory.limit_in_bytes",
		"pid1_oom_score": "/proc/1/oom_score_adj", "pid1_mem": "/proc/1/mem", "pid1_comm": "/proc/1/comm",
		"pid1_uid_map": "/proc/1/uid_map", "pid1_stdout": "/proc/1/fd/1", "pid1_stdin": "/proc/1/fd/0",
	} {
		probes = append(probes, open("proc", "write_"+name, "write a setting of the kernel or of PID 1", path, syscall.O_WRONLY, refused...))
	}
	for name, path := range map[string]string{
		"kcore": "/proc/kcore", "kmsg": "/proc/kmsg", "kallsyms": "/proc/kallsyms", "pid1_environ": "/proc/1/environ",
		"pid1_maps": "/proc/1/maps", "pid1_mem": "/proc/1/mem", "pid1_fd0": "/proc/1/fd/0", "pid1_io": "/proc/1/io",
		"pid1_root_shadow": "/proc/1/root/etc/shadow", "pid1_cwd": "/proc/1/cwd/", "pid1_exe": "/proc/1/exe",
		"debugfs": "/sys/kernel/debug/", "tracing": "/sys/kernel/tracing/trace", "efivars": "/sys/firmware/efi/efivars/",
	} {
		probes = append(probes, open("proc", "read_"+name, "read the kernel's or PID 1's memory", path, syscall.O_RDONLY, refused...))
	}
	return append(probes,
		try("proc", "make_cgroup", "a cgroup of one's own", func() error { return syscall.Mkdir("/sys/fs/cgroup/memory/mine", 0o755) }, refused...),
		harmless(try("proc", "oom_score_lower", "be the last that memory pressure kills", func() error {
			return writeFile("/proc/self/oom_score_adj", "-1000")
		}, "EACCES", "EPERM"), "the sentry notes the number; memory ends the whole sandbox, whoever the kernel took"),
		try("proc", "uid_map_root", "become root in a user namespace", func() error {
			return writeFile("/proc/self/uid_map", "0 0 1")
		}, refused...),
		try("proc", "setgroups_deny", "change the rules for groups", func() error {
			return writeFile("/proc/self/setgroups", "allow")
		}, refused...),
	)
}

func writeFile(path, text string) error {
	fd, err := syscall.Open(path, syscall.O_WRONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	_, err = syscall.Write(fd, []byte(text))
	return err
}

const (
	tool    = "/workspace/tools/bin/hello"
	scratch = "/workspace/submissions"
)

func fileProbes() []Probe {
	readOnly := []string{"EROFS", "EACCES", "EPERM", "EXDEV"}
	link := func(name string) string { return scratch + "/" + name }
	return []Probe{
		open("files", "write_tool", "change a tool", tool, syscall.O_WRONLY, readOnly...),
		open("files", "create_tool", "add a tool", "/workspace/tools/bin/mine", syscall.O_WRONLY|syscall.O_CREAT, readOnly...),
		open("files", "create_top_level", "a name beside challenge and submissions", "/workspace/mine", syscall.O_WRONLY|syscall.O_CREAT, readOnly...),
		open("files", "create_in_root", "write the root file system", "/etc/mine", syscall.O_WRONLY|syscall.O_CREAT, readOnly...),
		open("files", "write_passwd", "change the users", "/etc/passwd", syscall.O_WRONLY, readOnly...),
		open("files", "read_shadow", "read the password hashes", "/etc/shadow", syscall.O_RDONLY, "EACCES", "ENOENT"),
		open("files", "write_supervisor", "change PID 1's program", "/usr/local/bin/gauntlet-supervisor", syscall.O_WRONLY, append(readOnly, "E26")...),
		try("files", "rename_tools", "move the tools away", func() error { return syscall.Rename("/workspace/tools", link("tools")) }, append(readOnly, "EBUSY")...),
		try("files", "rename_challenge", "move the challenge away", func() error { return syscall.Rename("/workspace/challenge", link("challenge")) }, append(readOnly, "EBUSY")...),
		try("files", "unlink_tool", "remove a tool", func() error { return syscall.Unlink(tool) }, readOnly...),
		try("files", "hard_link_tool", "a second name for a tool, where it may be written", func() error { return syscall.Link(tool, link("hard")) }, readOnly...),
		try("files", "hard_link_shadow", "a second name for the password hashes", func() error { return syscall.Link("/etc/shadow", link("shadow")) }, append(readOnly, "ENOENT")...),
		try("files", "symlink_tool_write", "write a tool through a link of our own", func() error {
			_ = os.Remove(link("soft"))
			if err := syscall.Symlink(tool, link("soft")); err != nil {
				return err
			}
			return writeFile(link("soft"), "x")
		}, readOnly...),
		try("files", "chmod_tool", "change a tool's mode", func() error { return syscall.Chmod(tool, 0o777) }, readOnly...),
		try("files", "chown_tool", "own a tool", func() error { return syscall.Chown(tool, 1000, 1000) }, readOnly...),
		try("files", "chown_to_root", "give a file of ours to root", func() error {
			if err := os.WriteFile(link("gift"), []byte("x"), 0o600); err != nil {
				return err
			}
			return syscall.Chown(link("gift"), 0, 0)
		}, "EPERM"),
		try("files", "trusted_xattr", "the overlay's own attributes", func() error {
			return syscall.Setxattr(scratch, "trusted.overlay.opaque", []byte("y"), 0)
		}, "EPERM", "EOPNOTSUPP", "EACCES"),
		try("files", "capability_xattr", "a program with capabilities", func() error {
			if err := os.WriteFile(link("capable"), []byte("x"), 0o700); err != nil {
				return err
			}
			return syscall.Setxattr(link("capable"), "security.capability", make([]byte, 20), 0)
		}, "EPERM", "EOPNOTSUPP", "EINVAL"),
		try("files", "whiteout", "a whiteout of our own, made like overlayfs makes them", func() error {
			return syscall.Mknod(link("whiteout"), syscall.S_IFCHR, 0)
		}, "EPERM"),
		try("files", "named_pipe", "a named pipe: mknod is refused whole, so this is too", func() error {
			return syscall.Mkfifo(link("pipe"), 0o600)
		}, "EPERM"),
		open("files", "dot_dot", "above the root by dots", "/workspace/../../../../../../var/run/docker.sock", syscall.O_RDWR, "ENOENT", "EACCES"),
	}
}

// hostPaths guesses where the host keeps things, from what mountinfo tells.
func hostPaths() []string {
	text, _ := os.ReadFile("/proc/self/mountinfo")
	var paths []string
	for _, entry := range strings.Split(string(text), "\n") {
		fields := strings.Fields(entry)
		if len(fields) > 3 && fields[3] != "/" {
			paths = append(paths, fields[3])
		}
	}
	return paths
}

func hiddenProbes() []Probe {
	var probes []Probe
	for _, path := range []string{
		"/scoring", "/reference", "/results", "/sandbox", "/workspace/.sandbox", "/workspace/hidden", "/hidden",
		"/workspace/challenge/../../scoring", "/var/run/docker.sock", "/run/containerd/containerd.sock", "/host", "/var/lib/docker",
		"/etc/gauntlet", "/var/lib/gauntlet", "/run/gauntlet", "/.dockerenv/..scoring",
	} {
		name := strings.Trim(strings.NewReplacer("/", "_", ".", "").Replace(path), "_")
		probes = append(probes, open("hidden", name, "hidden tests and the host's own places", path, syscall.O_RDONLY, "ENOENT", "ENOTDIR"))
	}
	return append(probes, Probe{
		Name: "hidden.mountinfo_paths", Category: "hidden", How: "host paths that mountinfo gives away", ABI: "64",
		Expect: []string{"ENOENT"},
		Run: func() (string, string) {
			for _, path := range hostPaths() {
				if got, _ := opened(path, syscall.O_RDONLY); got == succeeded {
					return succeeded, path
				}
			}
			return "ENOENT", fmt.Sprint(hostPaths())
		},
	})
}
