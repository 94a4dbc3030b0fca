package main

// What /proc says about processes: only files every user may read, parsed strictly (the name in the middle of the
// line is the agent's text).

import (
	"bytes"
	"os"
	"strconv"
)

type proc struct {
	pid, parent, group, session int
	start                       uint64
	dead                        bool // zombie: nothing left to kill
	stopped                     bool
	comm                        string
}

// parseStat reads one line of /proc/<pid>/stat.
func parseStat(line []byte) (proc, bool) {
	open, end := bytes.IndexByte(line, '('), bytes.LastIndexByte(line, ')')
	if open < 1 || end < open {
		return proc{}, false
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(line[:open])))
	fields := bytes.Fields(line[end+1:])
	if err != nil || len(fields) < 20 {
		return proc{}, false
	}
	state := fields[0][0]
	p := proc{pid: pid, dead: state == 'Z' || state == 'X', stopped: state == 'T' || state == 't', comm: string(line[open+1 : end])}
	for i, into := range []*int{&p.parent, &p.group, &p.session} {
		if *into, err = strconv.Atoi(string(fields[1+i])); err != nil {
			return proc{}, false
		}
	}
	p.start, err = strconv.ParseUint(string(fields[19]), 10, 64)
	return p, err == nil
}

func scanProcesses() []proc {
	dir, err := os.Open("/proc")
	if err != nil {
		logf("/proc: %v", err)
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		logf("/proc: %v", err)
	}
	var out []proc
	for _, name := range names {
		if name[0] < '1' || name[0] > '9' {
			continue
		}
		line, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue // it ended meanwhile
		}
		if p, ok := parseStat(line); ok {
			out = append(out, p)
		}
	}
	return out
}
