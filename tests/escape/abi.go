package main

import (
	"syscall"
	"unsafe"
)

// x32Bit marks a system call number as one of the x32 ABI.
const x32Bit = 0x40000000

func int80(number, a1, a2, a3, a4, a5 uintptr) (result int64)

// call is a system call with its number in each ABI; -1 where an ABI has none.
type call struct {
	name       string
	nr64, nr32 int
	x32        int // 0: the 64-bit number
	arguments  func() [6]uintptr
}

// expectations of one call in each ABI; an empty list leaves the ABI out.
type expectations struct {
	native, int80, x32 []string
}

// everyABI makes the probes of one call.
func everyABI(category, how string, what call, expect expectations, report bool) []Probe {
	var probes []Probe
	add := func(abi string, expected []string, report bool, invoke func(a [6]uintptr) syscall.Errno) {
		if len(expected) == 0 {
			return
		}
		probes = append(probes, Probe{
			Name: category + "." + what.name + "." + abi, Category: category, How: how, ABI: abi,
			Expect: expected, Report: report,
			Run: func() (string, string) { return told(invoke(what.arguments()), "") },
		})
	}
	add("64", expect.native, report, func(a [6]uintptr) syscall.Errno { return raw(uintptr(what.nr64), a) })
	add("int80", expect.int80, false, func(a [6]uintptr) syscall.Errno {
		return errnoOf(int80(uintptr(what.nr32), a[0], a[1], a[2], a[3], a[4]))
	})
	x32 := what.x32
	if x32 == 0 {
		x32 = what.nr64
	}
	add("x32", expect.x32, false, func(a [6]uintptr) syscall.Errno { return raw(uintptr(x32)|x32Bit, a) })
	return probes
}

// native makes the one probe of a call that only the 64-bit ABI is tried with.
func native(category, name, how string, number int, expect []string, report bool, arguments ...uintptr) Probe {
	return Probe{
		Name: category + "." + name + ".64", Category: category, How: how, ABI: "64", Expect: expect, Report: report,
		Run: func() (string, string) {
			var a [6]uintptr
			copy(a[:], arguments)
			return told(raw(uintptr(number), a), "")
		},
	}
}

func raw(number uintptr, a [6]uintptr) syscall.Errno {
	_, _, errno := syscall.RawSyscall6(number, a[0], a[1], a[2], a[3], a[4], a[5])
	return errno
}

func errnoOf(result int64) syscall.Errno {
	if result < 0 && result > -4096 {
		return syscall.Errno(-result)
	}
	return 0
}

// low copies bytes to an address below 4 GiB, which every ABI can pass. Never freed: a probe's process is short.
func low(data []byte) uintptr {
	const map32Bit = 0x40
	address, _, errno := syscall.RawSyscall6(
		syscall.SYS_MMAP, 0, uintptr(len(data)+4096), syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON|map32Bit, ^uintptr(0), 0)
	if errno != 0 {
		panic(errno)
	}
	for i, value := range data {
		*(*byte)(unsafe.Add(unsafe.Pointer(nil), address+uintptr(i))) = value
	}
	return address
}

func lowString(text string) uintptr { return low(append([]byte(text), 0)) }

func args(values ...uintptr) func() [6]uintptr {
	return func() [6]uintptr {
		var a [6]uintptr
		copy(a[:], values)
		return a
	}
}

func errnos(names ...string) []string { return names }

// minus is the bit pattern of a negative argument.
func minus(value int) uintptr { return ^uintptr(value - 1) }
