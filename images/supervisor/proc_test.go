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
		if want := (proc{42, 7, 8, 9, 12345, false}); !ok || p != want {
			t.Errorf("%q: %+v %v", comm, p, ok)
		}
	}
	if p, ok := parseStat(statLine(1, "z", "Z", 1, 1, 1, 1)); !ok || !p.dead {
		t.Errorf("zombie: %+v %v", p, ok)
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
		{"leader and child", []proc{leader, {11, 10, 10, 10, 6, false}}, nil, nil, []int{10, 11}},
		{"orphan in the session", []proc{{11, 1, 10, 10, 6, false}}, nil, nil, []int{11}},
		{"own group in the session", []proc{{11, 1, 11, 10, 6, false}}, nil, nil, []int{11}},
		{"child in a new session, and its child", []proc{{12, 11, 11, 11, 7, false}, {11, 10, 11, 11, 6, false}, leader}, nil, nil, []int{10, 11, 12}},
		{"strangers", []proc{leader, {20, 1, 20, 20, 6, false}, {21, 20, 20, 20, 6, false}}, nil, nil, []int{10}},
		{"PID 1 never", []proc{{1, 0, 1, 1, 1, false}, {10, 1, 10, 10, 5, true}}, nil, nil, nil},
		{"zombies need no signal", []proc{{10, 1, 10, 10, 5, true}, {11, 10, 10, 10, 6, false}}, nil, nil, []int{11}},
		{"roots from outside", []proc{{30, 1, 30, 30, 6, false}, {31, 30, 31, 31, 6, false}}, []int{30}, nil, []int{30, 31}},
		{"our workers", []proc{leader, {40, 10, 10, 10, 6, false}}, nil, map[int]bool{40: true}, []int{10}},
	}
	for _, c := range cases {
		if got := newLineage(10, c.more, c.skip).members(c.procs); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestLineageRemembersAcrossScans(t *testing.T) {
	l := newLineage(10, nil, nil)
	l.members([]proc{{10, 1, 10, 10, 5, false}, {11, 10, 11, 11, 6, false}})
	// The leader is gone, its child in a session of its own was adopted by PID 1, and has a child itself.
	if got := l.members([]proc{{11, 1, 11, 11, 6, false}, {12, 11, 12, 12, 9, false}}); !reflect.DeepEqual(got, []int{11, 12}) {
		t.Errorf("%v", got)
	}
	// pid 12 was reused by a stranger: another start time, another session.
	if got := l.members([]proc{{12, 1, 50, 50, 99, false}, {13, 12, 50, 50, 100, false}}); got != nil {
		t.Errorf("a reused pid is hunted: %v", got)
	}
}
