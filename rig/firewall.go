// The controller of network policies of kube-router alone: its own main brings routing by BGP and a proxy of Services.
package main

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/cloudnativelabs/kube-router/v2/pkg/controllers/netpol"
	"github.com/cloudnativelabs/kube-router/v2/pkg/healthcheck"
	"github.com/cloudnativelabs/kube-router/v2/pkg/options"
	"github.com/spf13/pflag"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	config := options.NewKubeRouterConfig()
	config.AddFlags(pflag.CommandLine)
	pflag.Parse()
	access, err := clientcmd.BuildConfigFromFlags(config.Master, config.Kubeconfig)
	must(err)
	client, err := kubernetes.NewForConfig(access)
	must(err)
	factory, stop := informers.NewSharedInformerFactory(client, 0), make(chan struct{})
	pods := factory.Core().V1().Pods().Informer()
	policies := factory.Networking().V1().NetworkPolicies().Informer()
	namespaces := factory.Core().V1().Namespaces().Informer()
	factory.Start(stop)
	factory.WaitForCacheSync(stop)
	tables, sets, err := netpol.NewIPTablesHandlers(config)
	must(err)
	var lock sync.Mutex
	var controller *netpol.NetworkPolicyController
	for { // until the kubelet has registered its node
		controller, err = netpol.NewNetworkPolicyController(client, config, pods, policies, namespaces, &lock, tables, sets)
		if err == nil {
			break
		}
		fmt.Fprintln(os.Stderr, err)
		time.Sleep(time.Second)
	}
	_, err = pods.AddEventHandler(controller.PodEventHandler)
	must(err)
	_, err = namespaces.AddEventHandler(controller.NamespaceEventHandler)
	must(err)
	_, err = policies.AddEventHandler(controller.NetworkPolicyEventHandler)
	must(err)
	beats := make(chan *healthcheck.ControllerHeartbeat, 10)
	go func() {
		for range beats {
		}
	}()
	var running sync.WaitGroup
	running.Add(1)
	controller.Run(beats, stop, &running)
}
