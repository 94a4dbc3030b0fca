// cilium-verdict asks Cilium's own policy engine what a set of policy objects allows.
//
// It reads one JSON request a line on stdin and answers one JSON line each, so that a test
// session starts it once. A request without flows validates its objects only.
//
//	request:  {"cluster": NAME (optional), "objects": [OBJECT...],
//	           "pods":  {NAME: {"namespace": NS, "labels": {K: V}, "namespace_labels": {K: V}}},
//	           "peers": {NAME: {"ip": ADDR, "names": [DNS NAME...], "reserved": [LABEL...]} | {"entity": ENTITY}},
//	           "flows": [{"from": NAME, "to": NAME, "protocol": "TCP|UDP|SCTP|ICMP|ICMPv6", "port": N}]}
//	answer:   {"objects":  [{"kind", "name", "error", "skipped"}],
//	           "verdicts": [{"egress": BOOL, "ingress": BOOL, "error"}]}
//
// For ICMP the port is the ICMP type, and 0 cannot be asked. The engine judges layers 3 and 4;
// DNS names, SNI and HTTP hosts are left to the proxies and are out of its reach.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/cilium/cilium/pkg/option"
	"github.com/cilium/cilium/pkg/policy/api"
)

// defaultCluster is Cilium's name of a cluster that is given none.
const defaultCluster = "default"

type request struct {
	Cluster string            `json:"cluster"`
	Objects []json.RawMessage `json:"objects"`
	Pods    map[string]pod    `json:"pods"`
	Peers   map[string]peer   `json:"peers"`
	Flows   []flow            `json:"flows"`
}

type flow struct {
	From     string `json:"from"`
	To       string `json:"to"`
	Protocol string `json:"protocol"`
	Port     uint16 `json:"port"`
}

type answer struct {
	Objects  []objectReport `json:"objects"`
	Verdicts []verdict      `json:"verdicts"`
}

type objectReport struct {
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Error   string `json:"error"`
	Skipped bool   `json:"skipped"`
}

type verdict struct {
	Egress  bool   `json:"egress"`
	Ingress bool   `json:"ingress"`
	Error   string `json:"error"`
}

func main() {
	// Kubernetes' kubelet must reach its pods: the agent runs with this setting in every cluster.
	option.Config.UnsafeDaemonConfigOption.AllowLocalhost = option.AllowLocalhostAlways
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "cilium-verdict:", err)
		os.Exit(1)
	}
}

func serve(in io.Reader, out io.Writer) error {
	logger := slog.New(slog.DiscardHandler)
	reader := bufio.NewReaderSize(in, 1<<20)
	decoder := json.NewDecoder(reader)
	encoder := json.NewEncoder(out)
	for {
		var req request
		if err := decoder.Decode(&req); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("request is not JSON: %w", err)
		}
		if req.Cluster == "" {
			req.Cluster = defaultCluster
		}
		api.InitEntities(req.Cluster)
		ans, err := decide(logger, req)
		if err != nil {
			return err
		}
		if err := encoder.Encode(ans); err != nil {
			return err
		}
	}
}
