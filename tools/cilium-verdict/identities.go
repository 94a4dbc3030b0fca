package main

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/cilium/cilium/pkg/fqdn/dns"
	"github.com/cilium/cilium/pkg/identity"
	k8sconst "github.com/cilium/cilium/pkg/k8s/apis/cilium.io"
	"github.com/cilium/cilium/pkg/labels"
	"github.com/cilium/cilium/pkg/policy/api"
)

type pod struct {
	Namespace       string            `json:"namespace"`
	Labels          map[string]string `json:"labels"`
	NamespaceLabels map[string]string `json:"namespace_labels"`
}

type peer struct {
	IP string `json:"ip"`
	// Names are DNS names that were resolved to the address before the flow.
	Names []string `json:"names"`
	// Reserved adds labels to an address, e.g. kube-apiserver for a control plane outside the cluster.
	Reserved []string `json:"reserved"`
	Entity   string   `json:"entity"`
}

var entities = map[string]identity.NumericIdentity{
	"host":           identity.ReservedIdentityHost,
	"world":          identity.ReservedIdentityWorld,
	"world-ipv4":     identity.ReservedIdentityWorldIPv4,
	"world-ipv6":     identity.ReservedIdentityWorldIPv6,
	"remote-node":    identity.ReservedIdentityRemoteNode,
	"kube-apiserver": identity.ReservedIdentityKubeAPIServer,
	"health":         identity.ReservedIdentityHealth,
	"unmanaged":      identity.ReservedIdentityUnmanaged,
	"ingress":        identity.ReservedIdentityIngress,
}

// identities holds the ends of all flows of one request, by name and by number.
type identities struct {
	byName   map[string]*identity.Identity
	byNumber identity.IdentityMap
}

// makeIdentities gives pods global identities and outside addresses local ones, as the agent would.
func makeIdentities(cluster string, pods map[string]pod, peers map[string]peer, fqdns []api.FQDNSelector) (*identities, error) {
	ids := &identities{byName: map[string]*identity.Identity{}, byNumber: identity.IdentityMap{}}
	number := identity.NumericIdentity(1000)
	for _, name := range slices.Sorted(maps.Keys(pods)) {
		number++
		ids.add(name, number, podLabels(cluster, pods[name]))
	}
	local := identity.IdentityScopeLocal
	for _, name := range slices.Sorted(maps.Keys(peers)) {
		p := peers[name]
		if p.Entity != "" {
			reserved, known := entities[p.Entity]
			if !known {
				return nil, fmt.Errorf("peer %s: unknown entity %q", name, p.Entity)
			}
			ids.add(name, reserved, identity.LookupReservedIdentity(reserved).LabelArray)
			continue
		}
		lbls, err := addressLabels(p, fqdns)
		if err != nil {
			return nil, fmt.Errorf("peer %s: %w", name, err)
		}
		local++
		ids.add(name, local, lbls)
	}
	return ids, nil
}

func (ids *identities) add(name string, number identity.NumericIdentity, lbls labels.LabelArray) {
	id := identity.NewIdentityFromLabelArray(number, slices.Clone(lbls).Sort())
	ids.byName[name] = id
	ids.byNumber[number] = id.LabelArray
}

func podLabels(cluster string, p pod) labels.LabelArray {
	k8s := func(key, value string) labels.Label { return labels.NewLabel(key, value, labels.LabelSourceK8s) }
	lbls := labels.LabelArray{
		k8s("io.kubernetes.pod.namespace", p.Namespace),
		k8s(k8sconst.PolicyLabelCluster, cluster),
		// The API server sets this label on every namespace.
		k8s(k8sconst.PodNamespaceMetaLabels+".kubernetes.io/metadata.name", p.Namespace),
	}
	for key, value := range p.NamespaceLabels {
		lbls = append(lbls, k8s(k8sconst.PodNamespaceMetaLabels+"."+key, value))
	}
	for key, value := range p.Labels {
		lbls = append(lbls, k8s(key, value))
	}
	return lbls
}

func addressLabels(p peer, fqdns []api.FQDNSelector) (labels.LabelArray, error) {
	addr, err := netip.ParseAddr(p.IP)
	if err != nil {
		return nil, err
	}
	lbls := labels.GetCIDRLabels(netip.PrefixFrom(addr, addr.BitLen())).LabelArray()
	for _, name := range p.Reserved {
		lbls = append(lbls, labels.NewLabel(name, "", labels.LabelSourceReserved))
	}
	for _, name := range p.Names {
		for _, selector := range fqdns {
			pattern, err := selector.ToRegex()
			if err != nil {
				return nil, err
			}
			if label := selector.IdentityLabel(); pattern.MatchString(dns.FQDN(strings.ToLower(name))) && !lbls.IntersectsLabel(label) {
				lbls = append(lbls, label)
			}
		}
	}
	return lbls, nil
}
