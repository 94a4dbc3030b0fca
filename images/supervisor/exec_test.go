package main

import (
	"encoding/json"
	"math"
	"reflect"
	"syscall"
	"testing"
)

func TestCheckExec(t *testing.T) {
	good := func() *execRequest { return &execRequest{ExecID: "e", Argv: []Text{"true"}} }
	r := good()
	if err := checkExec(r); err != nil || *r.UID != agentUID || *r.GID != agentGID {
		t.Fatalf("%v %+v", err, r)
	}
	for name, spoil := range map[string]func(*execRequest){
		"no id":        func(r *execRequest) { r.ExecID = "" },
		"no argv":      func(r *execRequest) { r.Argv = nil },
		"empty name":   func(r *execRequest) { r.Argv = []Text{""} },
		"NUL in argv":  func(r *execRequest) { r.Argv = []Text{"a", "b\x00c"} },
		"NUL in cwd":   func(r *execRequest) { r.Cwd = "/\x00" },
		"bad env":      func(r *execRequest) { r.Env = map[string]string{"A=B": "c"} },
		"zero timeout": func(r *execRequest) { r.TimeoutSeconds = ptr(0.0) },
		"negative":     func(r *execRequest) { r.TimeoutSeconds = ptr(-1.0) },
		"NaN":          func(r *execRequest) { r.TimeoutSeconds = ptr(math.NaN()) },
		"infinite":     func(r *execRequest) { r.TimeoutSeconds = ptr(math.Inf(1)) },
		"root":         func(r *execRequest) { r.UID = ptr(uint32(0)) },
		"group 0":      func(r *execRequest) { r.GID = ptr(uint32(0)) },
	} {
		r := good()
		spoil(r)
		if checkExec(r) == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	r = good()
	r.UID, r.GID, r.Admin = ptr(uint32(0)), ptr(uint32(0)), true
	if err := checkExec(r); err != nil {
		t.Errorf("admin: %v", err)
	}
}

func TestCandidatesNeverLookAtAgentPlaces(t *testing.T) {
	s := &server{workspace: "/srv/work"}
	search := "/usr/bin:/nonexistent-dir:/workspace/tools/bin:/tmp/x:relative::/srv/work/bin"
	want := []string{"/workspace/tools/bin/zz", "/tmp/x/zz", "relative/zz", "./zz", "/srv/work/bin/zz"}
	if got := s.candidates("zz", search); !reflect.DeepEqual(got, want) {
		t.Errorf("%q", got)
	}
	if got := s.candidates("./zz", search); !reflect.DeepEqual(got, []string{"./zz"}) {
		t.Errorf("%q", got)
	}
}

func TestTextKeepsAnyBytes(t *testing.T) {
	for _, want := range []Text{"", "plain", "é", "\xff\xfe", "a\x00b", "{\"b64\":1}"} {
		b, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got Text
		if err := json.Unmarshal(b, &got); err != nil || got != want {
			t.Errorf("%q → %s → %q %v", want, b, got, err)
		}
	}
	for _, bad := range []string{"1", "[]", "{\"b64\":\"!\"}"} {
		var got Text
		if json.Unmarshal([]byte(bad), &got) == nil {
			t.Errorf("%s became %q", bad, got)
		}
	}
}

func TestErrnoNames(t *testing.T) {
	for err, want := range map[error]string{
		syscall.ENOSPC: "ENOSPC", syscall.EDQUOT: "EDQUOT", syscall.Errno(9999): "E9999", errAborted: "EIO",
	} {
		if got := errnoName(err); got != want {
			t.Errorf("%v: %s", err, got)
		}
	}
}

func TestWhoseTurn(t *testing.T) {
	w := turn{writing: true}
	if !w.workerOwes() {
		t.Error("a write that has not begun waits for the worker")
	}
	if _, ok := w.fromWorker(Frame{Type: tFileAck, Payload: []byte(`{"temp":"/x/.t"}`)}); !ok || w.workerOwes() || w.temp != "/x/.t" {
		t.Errorf("ready: %+v", w)
	}
	w.fromClient(Frame{Type: tFileData, Payload: make([]byte, 5)})
	if !w.workerOwes() {
		t.Error("data must be acknowledged")
	}
	w.fromWorker(Frame{Type: tFileAck, Offset: 5})
	if w.workerOwes() {
		t.Error("an idle client must not cost the worker its life")
	}
	w.fromClient(Frame{Type: tFileEnd})
	if !w.workerOwes() {
		t.Error("a commit must be answered")
	}
	r := turn{reading: true}
	for sent := 0; sent < window; sent += chunkSize {
		if _, ok := r.fromWorker(Frame{Type: tFileData, Offset: uint64(sent), Payload: make([]byte, chunkSize)}); !ok {
			t.Fatalf("data at %d was refused", sent)
		}
	}
	if r.workerOwes() {
		t.Error("the window is full: the client's turn")
	}
	if _, ok := r.fromWorker(Frame{Type: tFileData, Offset: window, Payload: []byte{1}}); ok {
		t.Error("data beyond the window")
	}
	r = turn{reading: true, out: window}
	r.fromClient(Frame{Type: tFileAck, Offset: 1})
	if !r.workerOwes() {
		t.Error("the window moved")
	}
}

func TestAWorkerIsHeldToTheProtocol(t *testing.T) {
	reading := turn{reading: true}
	writing := turn{writing: true, ready: true, out: 10, acked: 4}
	for name, c := range map[string]struct {
		t turn
		f Frame
	}{
		"pong":                    {reading, Frame{Type: tPong}},
		"end of an exec":          {reading, Frame{Type: tExited}},
		"ready":                   {reading, Frame{Type: tReady}},
		"sync answer":             {reading, Frame{Type: tSyncAck}},
		"data that does not join": {reading, Frame{Type: tFileData, Offset: 3, Payload: []byte{1}}},
		"empty data":              {reading, Frame{Type: tFileData}},
		"a big chunk":             {reading, Frame{Type: tFileData, Payload: make([]byte, chunkSize+1)}},
		"an ack in a read":        {reading, Frame{Type: tFileAck, Offset: 1}},
		"entries in a read":       {reading, Frame{Type: tFileEntries}},
		"data in a write":         {writing, Frame{Type: tFileData, Payload: []byte{1}}},
		"an ack twice":            {writing, Frame{Type: tFileAck, Offset: 4}},
		"an ack of nothing sent":  {writing, Frame{Type: tFileAck, Offset: 11}},
		"a long answer":           {writing, Frame{Type: tFileReply, Payload: make([]byte, maxAnswer+1)}},
		"endless entries":         {turn{entries: maxEntries}, Frame{Type: tFileEntries}},
	} {
		if _, ok := c.t.fromWorker(c.f); ok {
			t.Errorf("%s was passed on", name)
		}
	}
}
