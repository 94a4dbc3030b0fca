package main

// JSON payloads of control frames, and Text: a string that may hold any bytes.

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

const protocolVersion = 1

// Text travels as a JSON string when it is UTF-8, else as {"b64": "…"}.
type Text string

// MarshalJSON keeps odd bytes intact.
func (t Text) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(t)) {
		return json.Marshal(string(t))
	}
	return json.Marshal(map[string][]byte{"b64": []byte(t)})
}

// UnmarshalJSON takes either form.
func (t *Text) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		*t = Text(s)
		return nil
	}
	var o struct {
		B64 []byte `json:"b64"`
	}
	if err := json.Unmarshal(b, &o); err != nil {
		return fmt.Errorf("neither a string nor {\"b64\"}: %w", err)
	}
	*t = Text(o.B64)
	return nil
}

type helloRequest struct {
	Protocol int `json:"protocol"`
}

type assignRequest struct {
	Env map[string]string `json:"env"`
}

type killAllRequest struct {
	Signo int `json:"signo"`
}

type stopRequest struct {
	GraceSeconds float64 `json:"grace_seconds"`
}

type execRequest struct {
	ExecID         string            `json:"exec_id"`
	Argv           []Text            `json:"argv"`
	Cwd            Text              `json:"cwd"`
	Env            map[string]string `json:"env"`
	Stdin          bool              `json:"stdin"`
	UID            *uint32           `json:"uid"`
	GID            *uint32           `json:"gid"`
	TimeoutSeconds *float64          `json:"timeout_seconds"`
	MaxOutputBytes uint64            `json:"max_output_bytes"`
	Admin          bool              `json:"admin"`
}

type signalRequest struct {
	ExecID string `json:"exec_id"`
	Signo  int    `json:"signo"`
	Pids   []int  `json:"pids"`
}

type readyReply struct {
	Protocol   int        `json:"protocol"`
	Pid        int        `json:"pid"`
	BootID     string     `json:"boot_id"`
	Assigned   *string    `json:"assigned"`
	NextStream uint32     `json:"next_stream"`
	Execs      []execInfo `json:"execs"`
}

type execInfo struct {
	ExecID        string      `json:"exec_id"`
	Stream        uint32      `json:"stream"`
	Pid           int         `json:"pid"`
	StdoutTotal   uint64      `json:"stdout_total"`
	StderrTotal   uint64      `json:"stderr_total"`
	Stdin         bool        `json:"stdin"`
	StdinReceived uint64      `json:"stdin_received"`
	MaxOutput     uint64      `json:"max_output_bytes"`
	Result        *execResult `json:"result"`
}

type execResult struct {
	ExitCode      *int    `json:"exit_code"`
	Signal        *int    `json:"signal"`
	TimedOut      bool    `json:"timed_out"`
	DurationNs    int64   `json:"duration_ns"`
	StdoutTotal   uint64  `json:"stdout_total"`
	StderrTotal   uint64  `json:"stderr_total"`
	StdoutShipped uint64  `json:"stdout_shipped"`
	StderrShipped uint64  `json:"stderr_shipped"`
	Error         *string `json:"error"`
	ErrorErrno    *string `json:"error_errno"`
}

type failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // only our own plain structs come here
	}
	return b
}

func ptr[T any](v T) *T { return &v }
