package main

import (
	"fmt"
	"os"
	"reflect"
	"testing"
)

func statLine(pid int, comm, state string, parent, group, session int, start uint64) []byte {
	return []byte(fmt.Sprintf("%d (%s) %s %d %d %d 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 %d 1000 20 0 0\n",
		pid, comm, state, parent, group, session, start))
}

func TestParseStat(t *testing.T) {
	for _, comm := range []string{"sh", "a b", "x) R 1 1 1 (y", ") Z 0 0 0 0 0", "", "né\xff\n"} {
		p, ok := parseStat(statLine(42, comm, "S", 7, 8, 9, 12345))
		if want := (proc{pid: 42, parent: 7, group: 8, session: 9, start: 12345, comm: comm}); !ok || p != want {
			t.Errorf("%q: %+v %v", comm, p, ok)
		}
	}
	if p, ok := parseStat(statLine(1, "z", "Z", 1, 1, 1, 1)); !ok || !p.dead {
		t.Errorf("zombie: %+v %v", p, ok)
	}
	if p, ok := parseStat(statLine(1, "t", "T", 1, 1, 1, 1)); !ok || !p.stopped || p.dead {
		t.Errorf("stopped: %+v %v", p, ok)
	}
	for _, bad := range []string{"", "1", "1 (x)", "1 (x) R a b c", "x (y) R 1 2 3", "1 )x( R 1 2 3"} {
		if p, ok := parseStat([]byte(bad)); ok {
			t.Errorf("%q was believed: %+v", bad, p)
		}
	}
}

func TestScanSeesOurselves(t *testing.T) {
	for _, p := range scanProcesses() {
		if p.pid == os.Getpid() {
			if p.parent != os.Getppid() || p.dead || p.start == 0 {
				t.Fatalf("%+v", p)
			}
			return
		}
	}
	t.Fatal("our own process is not in /proc")
}

func TestLineage(t *testing.T) {
	leader := proc{pid: 10, parent: 1, group: 10, session: 10, start: 5}
	cases := []struct {
		name  string
		procs []proc
		more  []int
		skip  map[int]bool
		want  []int
	}{
		{"leader and child", []proc{leader, {pid: 11, parent: 10, group: 10, session: 10, start: 6}}, nil, nil, []int{10, 11}},
		{"orphan in the session", []proc{{pid: 11, parent: 1, group: 10, session: 10, start: 6}}, nil, nil, []int{11}},
		{"own group in the session", []proc{{pid: 11, parent: 1, group: 11, session: 10, start: 6}}, nil, nil, []int{11}},
		{"child in a new session, and its child", []proc{{pid: 12, parent: 11, group: 11, session: 11, start: 7}, {pid: 11, parent: 10, group: 11, session: 11, start: 6}, leader}, nil, nil, []int{10, 11, 12}},
		{"strangers", []proc{leader, {pid: 20, parent: 1, group: 20, session: 20, start: 6}, {pid: 21, parent: 20, group: 20, session: 20, start: 6}}, nil, nil, []int{10}},
		{"PID 1 never", []proc{{pid: 1, parent: 0, group: 1, session: 1, start: 1}, {pid: 10, parent: 1, group: 10, session: 10, start: 5, dead: true}}, nil, nil, nil},
		{"zombies need no signal", []proc{{pid: 10, parent: 1, group: 10, session: 10, start: 5, dead: true}, {pid: 11, parent: 10, group: 10, session: 10, start: 6}}, nil, nil, []int{11}},
		{"roots from outside", []proc{{pid: 30, parent: 1, group: 30, session: 30, start: 6}, {pid: 31, parent: 30, group: 31, session: 31, start: 6}}, []int{30}, nil, []int{30, 31}},
		{"our workers", []proc{leader, {pid: 40, parent: 10, group: 10, session: 10, start: 6}}, nil, map[int]bool{40: true}, []int{10}},
	}
	for _, c := range cases {
		if got := newLineage(10, c.more, c.skip).members(c.procs); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestLineageRemembersAcrossScans(t *testing.T) {
	l := newLineage(10, nil, nil)
	l.members([]proc{{pid: 10, parent: 1, group: 10, session: 10, start: 5}, {pid: 11, parent: 10, group: 11, session: 11, start: 6}})
	// The leader is gone, its child in a session of its own was adopted by PID 1, and has a child itself.
	if got := l.members([]proc{{pid: 11, parent: 1, group: 11, session: 11, start: 6}, {pid: 12, parent: 11, group: 12, session: 12, start: 9}}); !reflect.DeepEqual(got, []int{11, 12}) {
		t.Errorf("%v", got)
	}
	// pid 12 was reused by a stranger: another start time, another session.
	if got := l.members([]proc{{pid: 12, parent: 1, group: 50, session: 50, start: 99}, {pid: 13, parent: 12, group: 50, session: 50, start: 100}}); got != nil {
		t.Errorf("a reused pid is hunted: %v", got)
	}
}
