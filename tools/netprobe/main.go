// Netprobe finds out what a sandbox can really reach, before its first command.
//
// It reads a plan (JSON, from the variable GAUNTLET_PROBE_PLAN or else from standard input), runs every
// check at once and prints one JSON document. It only observes: what was expected, and whether a
// difference stops the start, is decided outside the sandbox. Standard library only, so that the static
// binary runs in an empty image; nothing an agent left in the sandbox takes part.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

const (
	version        = "netprobe/2"
	defaultTimeout = 2 * time.Second
	maxTimeout     = 30 * time.Second
	maxChecks      = 512
	parallel       = 64
)

// Check is one thing to try.
type Check struct {
	ID         string `json:"id"`
	Kind       string `json:"kind"`
	Address    string `json:"address"`
	Port       int    `json:"port"`
	Name       string `json:"name"`
	ServerName string `json:"server_name"`
}

// Plan is what to try; TimeoutMS bounds each check. Digest names the plan, and goes back with the results.
type Plan struct {
	Digest    string  `json:"digest"`
	TimeoutMS int     `json:"timeout_ms"`
	Checks    []Check `json:"checks"`
}

// Result says what happened: open (answered), refused (the target answered no), blocked (nothing came
// back, or no route), unsupported (this sandbox may not even try), error (the check itself failed).
type Result struct {
	ID        string  `json:"id"`
	Outcome   string  `json:"outcome"`
	Detail    string  `json:"detail"`
	ElapsedMS float64 `json:"elapsed_ms"`
}

func main() {
	plan, err := readPlan()
	if err != nil {
		fmt.Fprintf(os.Stderr, "netprobe: %v\n", err)
		os.Exit(2)
	}
	document := map[string]any{"probe": version, "digest": plan.Digest, "results": run(plan)}
	if err := json.NewEncoder(os.Stdout).Encode(document); err != nil {
		fmt.Fprintf(os.Stderr, "netprobe: %v\n", err)
		os.Exit(1)
	}
}

func readPlan() (Plan, error) {
	text := []byte(os.Getenv("GAUNTLET_PROBE_PLAN"))
	if len(text) == 0 {
		read, err := io.ReadAll(io.LimitReader(os.Stdin, 1<<20))
		if err != nil {
			return Plan{}, err
		}
		text = read
	}
	var plan Plan
	if err := json.Unmarshal(text, &plan); err != nil {
		return Plan{}, fmt.Errorf("the plan is no JSON of the known form: %w", err)
	}
	if len(plan.Checks) == 0 || len(plan.Checks) > maxChecks {
		return Plan{}, fmt.Errorf("the plan has %d checks, expected 1 to %d", len(plan.Checks), maxChecks)
	}
	return plan, nil
}

func run(plan Plan) []Result {
	timeout := time.Duration(plan.TimeoutMS) * time.Millisecond
	if timeout <= 0 || timeout > maxTimeout {
		timeout = defaultTimeout
	}
	results := make([]Result, len(plan.Checks))
	slots := make(chan struct{}, parallel)
	var wait sync.WaitGroup
	for index, check := range plan.Checks {
		wait.Add(1)
		go func() {
			defer wait.Done()
			slots <- struct{}{}
			defer func() { <-slots }()
			begun := time.Now()
			outcome, detail := perform(check, timeout)
			elapsed := float64(time.Since(begun).Microseconds()) / 1000
			results[index] = Result{ID: check.ID, Outcome: outcome, Detail: detail, ElapsedMS: elapsed}
		}()
	}
	wait.Wait()
	return results
}
