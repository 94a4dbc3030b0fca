package main

import (
	"errors"
	"fmt"
	"syscall"
)

var errnoNames = map[syscall.Errno]string{
	syscall.EPERM: "EPERM", syscall.ENOENT: "ENOENT", syscall.ESRCH: "ESRCH", syscall.EINTR: "EINTR",
	syscall.EIO: "EIO", syscall.ENXIO: "ENXIO", syscall.E2BIG: "E2BIG", syscall.ENOEXEC: "ENOEXEC",
	syscall.EBADF: "EBADF", syscall.EAGAIN: "EAGAIN", syscall.ENOMEM: "ENOMEM", syscall.EACCES: "EACCES",
	syscall.EFAULT: "EFAULT", syscall.EBUSY: "EBUSY", syscall.EEXIST: "EEXIST", syscall.EXDEV: "EXDEV",
	syscall.ENODEV: "ENODEV", syscall.ENOTDIR: "ENOTDIR", syscall.EISDIR: "EISDIR", syscall.EINVAL: "EINVAL",
	syscall.ENFILE: "ENFILE", syscall.EMFILE: "EMFILE", syscall.ETXTBSY: "ETXTBSY", syscall.EFBIG: "EFBIG",
	syscall.ENOSPC: "ENOSPC", syscall.EROFS: "EROFS", syscall.EMLINK: "EMLINK", syscall.EPIPE: "EPIPE",
	syscall.ENAMETOOLONG: "ENAMETOOLONG", syscall.ENOSYS: "ENOSYS", syscall.ENOTEMPTY: "ENOTEMPTY",
	syscall.ELOOP: "ELOOP", syscall.EOVERFLOW: "EOVERFLOW", syscall.EOPNOTSUPP: "EOPNOTSUPP",
	syscall.ESTALE: "ESTALE", syscall.EDQUOT: "EDQUOT", syscall.ETIMEDOUT: "ETIMEDOUT",
}

// errnoName finds the errno inside err and names it; EIO when there is none.
func errnoName(err error) string {
	var e syscall.Errno
	if !errors.As(err, &e) {
		return "EIO"
	}
	if name, ok := errnoNames[e]; ok {
		return name
	}
	return fmt.Sprintf("E%d", int(e))
}
