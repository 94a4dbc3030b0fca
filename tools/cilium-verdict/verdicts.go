package main

import (
	"log/slog"

	envoypolicy "github.com/cilium/cilium/pkg/envoy/policy"
	"github.com/cilium/cilium/pkg/identity/identitymanager"
	ipcachetypes "github.com/cilium/cilium/pkg/ipcache/types"
	"github.com/cilium/cilium/pkg/policy"
	policytypes "github.com/cilium/cilium/pkg/policy/types"
	testidentity "github.com/cilium/cilium/pkg/testutils/identity"
	testpolicy "github.com/cilium/cilium/pkg/testutils/policy"
	"github.com/cilium/cilium/pkg/u8proto"
)

// decide answers one request with a repository of its own: nothing of an earlier request remains.
func decide(logger *slog.Logger, req request) (answer, error) {
	objects := parseObjects(logger, req.Cluster, req.Objects)
	ans := answer{Objects: objects.reports, Verdicts: make([]verdict, 0, len(req.Flows))}
	if len(req.Flows) == 0 {
		return ans, nil
	}
	ids, err := makeIdentities(req.Cluster, req.Pods, req.Peers, objects.fqdns)
	if err != nil {
		return ans, err
	}
	manager := identitymanager.NewIDManager(logger)
	// A repository without a translator panics on the first HTTP rule.
	translator := envoypolicy.NewEnvoyL7RulesTranslator(logger, nil)
	repo := policy.NewPolicyRepository(logger, ids.byNumber, nil, translator, manager, testpolicy.NewPolicyMetricsNoop())
	repo.GetSelectorCache().SetLocalIdentityNotifier(testidentity.NewDummyIdentityNotifier())
	manager.Subscribe(testpolicy.SelectorCacheObserver{Cache: repo.GetSubjectSelectorCache()})
	repo.ReplaceByResource(objects.entries, ipcachetypes.ResourceID("request"))
	for _, f := range req.Flows {
		ans.Verdicts = append(ans.Verdicts, lookup(logger, repo, manager, ids, f))
	}
	return ans, nil
}

func lookup(logger *slog.Logger, repo *policy.Repository, manager identitymanager.IDManager, ids *identities, f flow) verdict {
	from, to := ids.byName[f.From], ids.byName[f.To]
	if from == nil || to == nil {
		return verdict{Error: "unknown end: " + f.From + " or " + f.To}
	}
	proto, err := u8proto.ParseProtocol(f.Protocol)
	if err != nil {
		return verdict{Error: err.Error()}
	}
	result, _, _, err := policy.LookupFlow(logger, repo, manager, policytypes.Flow{From: from, To: to, Proto: proto, Dport: f.Port})
	if err != nil {
		return verdict{Error: err.Error()}
	}
	return verdict{
		Egress:  result.Egress == policytypes.DecisionAllowed,
		Ingress: result.Ingress == policytypes.DecisionAllowed,
	}
}
