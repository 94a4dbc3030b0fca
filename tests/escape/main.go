// Command escape tries to get out of a sandbox, one probe at a time, and prints what each attempt met.
//
//	escape                  every probe, each in a process of its own; one JSON line each
//	escape list             the table without trying anything
//	escape NAME             one probe in this process: the harness calls itself like this
//	escape flood CALL N     N denied calls (mount, settimeofday) in a row; prints how many were refused
//	escape hold|try FILE    one end of a covert channel over a shared file; see channel.go
//	escape forge HEX        writes bytes to every descriptor this process inherited
//
// Standard library and raw system calls only; built without cgo, so that it runs in any image.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// probeDeadline is far above what any probe needs: a probe that hangs is a finding, not a wait.
const probeDeadline = 20 * time.Second

// Line is one probe's outcome as it is printed.
type Line struct {
	Name     string   `json:"name"`
	Category string   `json:"category"`
	How      string   `json:"how"`
	ABI      string   `json:"abi"`
	Expect   []string `json:"expect"`
	Report   bool     `json:"report"`
	Why      string   `json:"why,omitempty"`
	Got      string   `json:"got"`
	Detail   string   `json:"detail,omitempty"`
	PID      int      `json:"pid"`
	OK       bool     `json:"ok"`
}

// outcome is what a probe's own process prints.
type outcome struct {
	Got    string `json:"got"`
	Detail string `json:"detail,omitempty"`
	PID    int    `json:"pid,omitempty"` // of the process that made the attempt, where it was another one
}

func main() {
	arguments := os.Args[1:]
	switch {
	case len(arguments) == 0:
		runAll(allProbes())
	case arguments[0] == "list":
		for _, probe := range allProbes() {
			print(line(probe, outcome{}, 0))
		}
	case arguments[0] == "flood" && len(arguments) == 3:
		flood(arguments[1], arguments[2])
	case arguments[0] == "hold" && len(arguments) == 2:
		holdChannel(arguments[1])
	case arguments[0] == "try" && len(arguments) == 2:
		tryChannel(arguments[1])
	case arguments[0] == "forge" && len(arguments) == 2:
		forge(arguments[1])
	default:
		runOne(arguments[0])
	}
}

func runAll(probes []Probe) {
	for _, probe := range probes {
		found, pid := inChild(probe)
		print(line(probe, found, pid))
	}
}

func line(probe Probe, found outcome, pid int) Line {
	result := Line{
		Name: probe.Name, Category: probe.Category, How: probe.How, ABI: probe.ABI, Expect: probe.Expect,
		Report: probe.Report, Why: probe.Why, Got: found.Got, Detail: found.Detail, PID: pid,
	}
	for _, expected := range probe.Expect {
		result.OK = result.OK || expected == found.Got
	}
	return result
}

func print(value Line) {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}

// inChild runs a probe in a process of its own, whose end is the finding when it does not come back.
func inChild(probe Probe) (outcome, int) {
	var stdout, stderr bytes.Buffer
	command := exec.Command("/proc/self/exe", probe.Name)
	command.Stdout, command.Stderr = &stdout, &stderr
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		return outcome{Got: "NOT_STARTED", Detail: err.Error()}, 0
	}
	pid := command.Process.Pid
	timer := time.AfterFunc(probeDeadline, func() { _ = syscall.Kill(-pid, syscall.SIGKILL) })
	err := command.Wait()
	late := !timer.Stop()
	status := command.ProcessState.Sys().(syscall.WaitStatus)
	var found outcome
	switch {
	case late:
		found = outcome{Got: "HANGS", Detail: stderr.String()}
	case status.Signaled():
		found = outcome{Got: signalName(status.Signal())}
	case err != nil || json.Unmarshal(stdout.Bytes(), &found) != nil:
		found = outcome{Got: "BROKEN", Detail: fmt.Sprintf("%v %s %s", err, stdout.String(), stderr.String())}
	}
	if found.PID != 0 {
		pid = found.PID
	}
	return found, pid
}

func runOne(name string) {
	for _, probe := range allProbes() {
		if probe.Name == name {
			defaultFaults()
			var found outcome
			if probe.RunIn != nil {
				found.Got, found.Detail, found.PID = probe.RunIn()
			} else {
				found.Got, found.Detail = probe.Run()
			}
			text, err := json.Marshal(found)
			if err != nil {
				panic(err)
			}
			fmt.Println(string(text))
			return
		}
	}
	fmt.Fprintf(os.Stderr, "no probe %q; try: escape list\n", name)
	os.Exit(2)
}
