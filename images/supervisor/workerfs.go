package main

// The worker's calls that move no content: list, stat, mkdir, remove.

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"sort"
	"syscall"
)

const (
	maxList = 100_000
	// entriesPerFrame keeps a FILE_ENTRIES payload far below the maximum: a name has at most 255 bytes, a link
	// 4,095.
	entriesPerFrame = 64
)

type fileStat struct {
	Type    string `json:"type"`
	Mode    uint32 `json:"mode"`
	Size    int64  `json:"size"`
	UID     uint32 `json:"uid"`
	GID     uint32 `json:"gid"`
	MtimeNs int64  `json:"mtime_ns"`
	Target  *Text  `json:"target,omitempty"`
}

type dirEntry struct {
	Name Text     `json:"name"`
	Stat fileStat `json:"stat"`
}

var typeNames = map[uint32]string{
	syscall.S_IFREG: "file", syscall.S_IFDIR: "dir", syscall.S_IFLNK: "symlink", syscall.S_IFIFO: "fifo",
	syscall.S_IFSOCK: "socket", syscall.S_IFCHR: "char", syscall.S_IFBLK: "block",
}

func statPath(p string) (fileStat, error) {
	var st syscall.Stat_t
	if err := syscall.Lstat(p, &st); err != nil {
		return fileStat{}, err
	}
	out := fileStat{typeNames[st.Mode&syscall.S_IFMT], st.Mode & 0o7777, st.Size, st.Uid, st.Gid, st.Mtim.Nano(), nil}
	if out.Type == "symlink" {
		link, err := os.Readlink(p)
		if err != nil {
			return fileStat{}, err
		}
		out.Target = ptr(Text(link))
	}
	return out, nil
}

// list sends the entries, sorted by name, in FILE_ENTRIES frames; past limit it stops reading names.
func (w *fileWorkerState) list(stream uint32, p string, limit int) (any, error) {
	if limit <= 0 || limit > maxList {
		limit = maxList
	}
	fd, err := syscall.Open(p, readFlags|syscall.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	dir := os.NewFile(uintptr(fd), p)
	defer dir.Close()
	names, err := dir.Readdirnames(limit + 1)
	if err != nil && len(names) == 0 && !errors.Is(err, io.EOF) {
		return nil, err
	}
	truncated := len(names) > limit
	names = names[:min(len(names), limit)]
	sort.Strings(names)
	entries := []dirEntry{}
	flush := func() error {
		if len(entries) == 0 {
			return nil
		}
		payload := mustJSON(entries)
		entries = entries[:0]
		if w.send(Frame{Type: tFileEntries, Stream: stream, Payload: payload}) != nil {
			return errGone
		}
		return nil
	}
	for _, name := range names {
		st, err := statPath(filepath.Join(p, name))
		if err == syscall.ENOENT {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		if entries = append(entries, dirEntry{Text(name), st}); len(entries) == entriesPerFrame {
			if err := flush(); err != nil {
				return nil, err
			}
		}
	}
	return map[string]bool{"truncated": truncated}, flush()
}

func makeDir(p string, r fileRequest) error {
	mode := os.FileMode(0o755)
	if r.Mode != nil {
		mode = os.FileMode(*r.Mode & 0o777)
	}
	if r.Parents {
		return os.MkdirAll(p, mode)
	}
	return os.Mkdir(p, mode)
}

// removePath follows nothing; a directory with content needs recursive.
func removePath(p string, recursive bool) error {
	var st syscall.Stat_t
	if err := syscall.Lstat(p, &st); err != nil {
		return err
	}
	if st.Mode&syscall.S_IFMT != syscall.S_IFDIR {
		return syscall.Unlink(p)
	}
	if recursive {
		return os.RemoveAll(p)
	}
	return syscall.Rmdir(p)
}
