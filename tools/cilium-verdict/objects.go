package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"

	"github.com/cilium/cilium/pkg/k8s"
	v2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	slim_networkingv1 "github.com/cilium/cilium/pkg/k8s/slim/k8s/api/networking/v1"
	"github.com/cilium/cilium/pkg/policy/api"
	policytypes "github.com/cilium/cilium/pkg/policy/types"
	policyutils "github.com/cilium/cilium/pkg/policy/utils"
)

// parsed is what the objects of one request amount to.
type parsed struct {
	reports []objectReport
	entries policytypes.PolicyEntries
	// fqdns are all toFQDNs selectors: an address learns its labels from those that match its names.
	fqdns []api.FQDNSelector
}

// parseObjects reads every object the way the agent does. One that is refused is reported and left
// out, as the agent would; kinds that are no policy of this engine are reported as skipped.
func parseObjects(logger *slog.Logger, cluster string, objects []json.RawMessage) parsed {
	result := parsed{reports: []objectReport{}, entries: policytypes.PolicyEntries{}}
	for _, raw := range objects {
		var head struct {
			Kind     string `json:"kind"`
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
		}
		if err := json.Unmarshal(raw, &head); err != nil {
			result.reports = append(result.reports, objectReport{Error: err.Error()})
			continue
		}
		report := objectReport{Kind: head.Kind, Name: head.Metadata.Name}
		entries, rules, err := parseObject(logger, cluster, head.Kind, raw)
		switch {
		case errors.Is(err, errOtherKind):
			report.Skipped = true
		case err != nil:
			report.Error = err.Error()
		default:
			result.entries = append(result.entries, entries...)
			for _, rule := range rules {
				for _, egress := range rule.Egress {
					result.fqdns = append(result.fqdns, egress.ToFQDNs...)
				}
			}
		}
		result.reports = append(result.reports, report)
	}
	return result
}

var errOtherKind = errors.New("no policy of this engine")

func parseObject(logger *slog.Logger, cluster, kind string, raw []byte) (policytypes.PolicyEntries, api.Rules, error) {
	switch kind {
	case "CiliumNetworkPolicy":
		var object v2.CiliumNetworkPolicy
		if err := strict(raw, &object); err != nil {
			return nil, nil, err
		}
		rules, err := object.Parse(logger, cluster)
		return policyutils.RulesToPolicyEntries(rules), rules, err
	case "CiliumClusterwideNetworkPolicy":
		var object v2.CiliumClusterwideNetworkPolicy
		if err := strict(raw, &object); err != nil {
			return nil, nil, err
		}
		rules, err := object.Parse(logger, cluster)
		return policyutils.RulesToPolicyEntries(rules), rules, err
	case "NetworkPolicy":
		var object slim_networkingv1.NetworkPolicy
		if err := strict(raw, &object); err != nil {
			return nil, nil, err
		}
		entries, err := k8s.ParseNetworkPolicy(logger, cluster, &object)
		return entries, nil, err
	default:
		return nil, nil, errOtherKind
	}
}

// strict refuses a key the type does not know: a misspelt one would otherwise be a rule that is not there.
func strict(raw []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}
