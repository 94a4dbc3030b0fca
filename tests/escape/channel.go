package main

import (
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

// flood makes n denied calls and prints how many were refused with EPERM.
func flood(name, count string) {
	calls, err := strconv.Atoi(count)
	if err != nil {
		panic(err)
	}
	numbers := map[string]uintptr{"mount": 165, "settimeofday": 164}
	number, known := numbers[name]
	if !known {
		fmt.Fprintln(os.Stderr, "flood mount N, or flood settimeofday N")
		os.Exit(2)
	}
	target := lowString(scratch)
	refused := 0
	for range calls {
		if raw(number, [6]uintptr{target, target, target, 0, 0}) == syscall.EPERM {
			refused++
		}
	}
	fmt.Println(refused)
}

// holdChannel uses a shared read-only file like a sender would: it locks it, reads it and waits for input's end.
func holdChannel(path string) {
	fd, err := syscall.Open(path, syscall.O_RDONLY, 0)
	if err != nil {
		panic(err)
	}
	whole := syscall.Flock_t{Type: syscall.F_RDLCK}
	fmt.Printf("flock=%v posix=%v\n", syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB), syscall.FcntlFlock(uintptr(fd), syscall.F_SETLK, &whole))
	_, _ = syscall.Read(fd, make([]byte, 4096))
	_, _ = os.Stdin.Read(make([]byte, 1))
}

// tryChannel says what a receiver in another sandbox sees of that: locks, access time, events.
func tryChannel(path string) {
	watcher, err := syscall.InotifyInit1(syscall.IN_NONBLOCK)
	if err != nil {
		panic(err)
	}
	const everything = 0xfff
	_, watched := syscall.InotifyAddWatch(watcher, path, everything)
	before, err := os.Stat(path)
	if err != nil {
		panic(err)
	}
	// The sender is at work while we look; its file's access time would tell.
	fmt.Printf("ready watch=%v\n", watched)
	_, _ = os.Stdin.Read(make([]byte, 1))
	after, err := os.Stat(path)
	if err != nil {
		panic(err)
	}
	events := make([]byte, 4096)
	n, _ := syscall.Read(watcher, events)
	fd, err := syscall.Open(path, syscall.O_RDONLY, 0)
	if err != nil {
		panic(err)
	}
	locked := syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB)
	fmt.Printf("locked=%t atime_moved=%t events=%t\n", locked != nil, !accessed(before).Equal(accessed(after)), n > 0)
}

func accessed(info os.FileInfo) time.Time {
	status := info.Sys().(*syscall.Stat_t)
	return time.Unix(status.Atim.Sec, status.Atim.Nsec)
}

// forge writes bytes to every descriptor it inherited, as an agent would that knows the supervisor's frames.
func forge(text string) {
	data, err := hex.DecodeString(text)
	if err != nil {
		panic(err)
	}
	for fd := range 64 {
		_, _ = syscall.Write(fd, data)
	}
}
