//go:build faults

package tests

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
)

// watchMedia makes the page share a moving picture as its screen and note, by source, the id of the other participant's track and when it
// last received something of it.
const watchMedia = `{
	const canvas = document.createElement('canvas'), g = canvas.getContext('2d');
	canvas.width = 640;
	canvas.height = 360;
	let n = 0;
	setInterval(() => { g.fillStyle = 'hsl(' + (n++ % 360) + ' 80% 50%)'; g.fillRect(0, 0, 640, 360) }, 100);
	const screen = canvas.captureStream(10).getVideoTracks()[0];
	currentRoom.localParticipant.publishTrack(screen, { source: 'screen_share', simulcast: false });
	window.media = {};
	window.gaps = {};
	window.repaired = [];
	const warn = console.warn;
	console.warn = (...a) => { if (String(a[0]).startsWith('published again: ')) repaired.push(a[0].slice(17)); warn(...a) };
	currentRoom.on('dataReceived', (payload) => { media.data = { sid: new TextDecoder().decode(payload), n: 0, at: performance.now() } });
	setInterval(async () => {
		for (const p of currentRoom.remoteParticipants.values()) for (const pub of p.trackPublications.values()) {
			if (!pub.track?.receiver) continue;
			if (pub.source === 'screen_share' && !pub.track.attachedElements.length) { // one that is not visible is paused
				document.querySelector('#screen')?.remove();
				document.body.append(Object.assign(pub.track.attach(), { id: 'screen', style: 'position: fixed; top: 0; right: 0; width: 160px' }));
			}
			let n = 0;
			for (const s of (await pub.track.receiver.getStats()).values()) if (s.type === 'inbound-rtp') n += pub.kind === 'video' ? s.framesDecoded ?? 0 : s.packetsReceived;
			const was = media[pub.source];
			if (was?.sid === pub.trackSid && was.n >= n) continue;
			if (was?.at && was.sid !== pub.trackSid && n > 0) gaps[pub.source] = performance.now() - was.at;
			if (n > 0 || !was) media[pub.source] = { sid: pub.trackSid, n, at: n > 0 ? performance.now() : 0 };
		}
	}, 100);
}`

// sentMedia describes what a page believes to publish, for a test that failed.
const sentMedia = `JSON.stringify([...currentRoom.localParticipant.trackPublications.values()].map((p) => [
	p.source, p.trackSid, p.isMuted ? 'muted' : 'unmuted', p.track?.mediaStreamTrack?.readyState, p.track?.sender?.transport?.state,
	p.track?.sender?.track === p.track?.mediaStreamTrack,
]))`

// dataChannels describes the way of messages, for a test that failed.
const dataChannels = `JSON.stringify([window.sendError ?? '', currentRoom.engine?.dataChannels.reliable.channelHandle?.readyState ?? '', currentRoom.engine?.dataChannels.reliableSub?.readyState ?? ''])`

// receivedMedia describes what a page has of the other participant.
const receivedMedia = `JSON.stringify([...currentRoom.remoteParticipants.values()].flatMap((p) => [...p.trackPublications.values()].map((p) => [
	p.source, p.trackSid, p.isSubscribed ? 'subscribed' : 'not subscribed', p.isMuted ? 'muted' : 'unmuted', p.isEnabled ? 'enabled' : 'disabled',
	p.track?.streamState, p.track?.attachedElements.length, JSON.stringify(media[p.source]),
])))`

// receives is what a page has received of the other participant, by source: the ids of tracks that still flow.
func (c *caller) receives() map[string]string {
	c.Helper()
	return ask[map[string]string](c.tab, `Object.fromEntries(Object.entries(media).filter(([k, v]) => k === 'data' || performance.now() - v.at < 1000).map(([k, v]) => [k, v.sid]))`)
}

// sends sends a message to the other participant.
func (c *caller) sends(text string) {
	c.Helper()
	c.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`{ currentRoom.localParticipant.publishData(new TextEncoder().encode(%q), { reliable: true }).catch((e) => { window.sendError = String(e) }) }`, text)))
}

var sources = []string{"camera", "microphone", "screen_share", "data"}

// FR2: two browsers with camera, microphone and screen share, and messages, through kills of the LiveKit server and planned moves. After
// each, both receive everything of each other again.
func TestConferencePage_RepeatedMoves_AllMediaReturn(t *testing.T) {
	t.Parallel()
	const number, moves, within = "8635000003", 30, time.Minute
	random := rand.New(rand.NewPCG(streamSeed(t), 1))
	s := newStack(t, withParticipants())
	m := s.conferences()
	units := s.mediaUnits(5)
	owner := units[m.open(number, func(c *client.ConferenceSpec) { c.DurationMs = time.Hour.Milliseconds() }).Owner.NodeID]
	host, ann := s.callers(t, number)
	both := []*caller{host, ann}
	// all waits until both receive everything in tracks other than before, and returns what is missing after a time.
	all := func(message string, before []map[string]string) (took time.Duration, missing []string) {
		begun := time.Now()
		for {
			missing = nil
			for i, c := range both {
				both[1-i].sends(message)
				got := c.receives()
				for _, source := range sources {
					if sid := got[source]; sid == "" || source != "data" && sid == before[i][source] || source == "data" && sid != message {
						missing = append(missing, fmt.Sprintf("%s of %s", source, []string{"ann", "the host"}[i]))
					}
				}
			}
			if took = time.Since(begun); len(missing) == 0 || took > within {
				return took, missing
			}
			pause(t.Context(), 100*time.Millisecond)
		}
	}
	none := []map[string]string{{}, {}}
	_, missing := all("first", none)
	require.Empty(t, missing, "before any move")
	operator := s.user("op", "operator")
	lost := map[string]map[string]int{}
	for _, kind := range []string{"kill -9", "planned move"} {
		lost[kind] = map[string]int{}
		complete, times, gaps, repaired := 0, []time.Duration{}, map[string][]float64{}, 0
		for i := range moves {
			pause(t.Context(), time.Duration(random.IntN(2000))*time.Millisecond)
			before := []map[string]string{host.receives(), ann.receives()}
			former := owner
			if kind == "kill -9" {
				former.Kill()
			} else {
				to := otherUnit[former.id]
				s.eventually("the move", func() bool { // its response may be late
					_, err := operator.MoveConference(t.Context(), number, to)
					return err == nil || on(to)(m.current(number))
				})
			}
			owner = units[m.await(number, "on the other unit", func(c berth.Conference) bool { return on(c.Owner.NodeID)(c) && c.Owner.NodeID != former.id }).Owner.NodeID]
			took, missing := all(fmt.Sprint(kind, " ", i), before)
			if len(missing) == 0 {
				complete, times = complete+1, append(times, took)
			}
			for _, what := range missing {
				lost[kind][what]++
				t.Logf("%s %d: %s is missing", kind, i, what)
			}
			for _, c := range both {
				for source, ms := range ask[map[string]float64](c.tab, `(() => { const g = gaps; gaps = {}; return g })()`) {
					gaps[source] = append(gaps[source], ms)
				}
				for _, source := range ask[[]string](c.tab, `repaired.splice(0)`) {
					repaired++
					t.Logf("%s %d: %s was published again", kind, i, source)
				}
			}
			if len(missing) > 0 {
				for _, c := range both {
					t.Logf("published: %s", ask[string](c.tab, sentMedia))
					t.Logf("last error of a message, channels for sending and receiving: %s", ask[string](c.tab, dataChannels))
					t.Logf("received at %.0f: %s", ask[float64](c.tab, `performance.now()`), ask[string](c.tab, receivedMedia))
				}
				t.Logf("on the unit: %+v", owner.members(number))
				for _, c := range both { // the next round begins with everything
					c.do(chromedp.Reload())
					c.meets(2, 2)
					c.do(chromedp.Evaluate[chromedp.Void](watchMedia))
				}
				_, missing = all("again", none)
				require.Empty(t, missing, "after a reload")
			}
			if kind == "kill -9" {
				former.boot()
				s.awaitNode(former.id)
			}
		}
		slices.Sort(times)
		line := fmt.Sprintf("%s: %d of %d moves with everything, %d tracks published again by the page", kind, complete, moves, repaired)
		if len(times) > 0 {
			line += fmt.Sprintf(", after the owner changed p50 %.1f s, max %.1f s", times[len(times)/2].Seconds(), times[len(times)-1].Seconds())
		}
		for source, all := range gaps {
			slices.Sort(all)
			line += fmt.Sprintf("; %s interrupted p50 %.1f s, max %.1f s", source, all[len(all)/2]/1000, all[len(all)-1]/1000)
		}
		t.Log(line)
	}
	for kind, what := range lost {
		require.Empty(t, what, kind)
	}
}

// callers connects two browsers with camera, microphone and screen to a conference of alice.
func (s *stack) callers(t *testing.T, number string) (host, ann *caller) {
	t.Helper()
	host, ann = s.caller(t), s.caller(t)
	host.openAs(s, "alice")
	host.do(chromedp.Evaluate[chromedp.Void](`{ location.hash = '#/conferences/` + number + `' }`))
	host.await("the lobby of the host", `document.querySelector('#meeting-name')?.value === 'alice'`)
	host.join("", true)
	ann.do(chromedp.Navigate(host.invite(1)))
	ann.await("the lobby of Ann", `document.querySelector('#meeting-name') !== null`)
	ann.join("Ann", true)
	for _, c := range []*caller{host, ann} {
		c.meets(2, 2)
		c.do(chromedp.Evaluate[chromedp.Void](watchMedia))
	}
	return host, ann
}

// failMessage sends a message in the moment in which the client has no connection. The client keeps that error.
const failMessage = `{
	const { engine } = currentRoom, close = engine.cleanupPeerConnections.bind(engine);
	engine.cleanupPeerConnections = async () => {
		await close();
		currentRoom.localParticipant.publishData(new Uint8Array(1), { reliable: true }).catch(() => { window.messageFailed = true });
	};
}`

// FR2: a message that fails while a conference moves does not prevent later ones.
func TestConferencePage_MessageFailsInMove_LaterOnesArrive(t *testing.T) {
	t.Parallel()
	const number = "8635000005"
	s := newStack(t, withParticipants())
	m := s.conferences()
	units := s.mediaUnits(5)
	owner := units[m.open(number).Owner.NodeID]
	host, ann := s.callers(t, number)
	ann.do(chromedp.Evaluate[chromedp.Void](failMessage))
	owner.Kill()
	ann.await("a message to fail", `window.messageFailed`)
	s.eventually("a later message", func() bool {
		ann.sends("later")
		return host.receives()["data"] == "later"
	})
}

// loseCamera makes the server not find the camera that the page publishes next, as in the race of the client.
const loseCamera = `{
	const { engine } = currentRoom, add = engine.addTrack.bind(engine);
	engine.addTrack = (req) => {
		if (req.source !== 1) return add(req);
		engine.addTrack = add;
		return Promise.resolve({ sid: 'TR_none', name: '', codecs: [], audioFeatures: [], source: 1, muted: false, layers: [], width: 640, height: 360 });
	};
}`

// FR2: a camera that the client lists after a move, and that the server does not have, is published again by the page.
func TestConferencePage_CameraLostInMove_IsPublishedAgain(t *testing.T) {
	t.Parallel()
	const number = "8635000004"
	s := newStack(t, withParticipants())
	m := s.conferences()
	units := s.mediaUnits(5)
	owner := units[m.open(number).Owner.NodeID]
	host, ann := s.callers(t, number)
	s.eventually("the camera", func() bool { return host.receives()["camera"] != "" })
	before := host.receives()["camera"]
	ann.do(chromedp.Evaluate[chromedp.Void](loseCamera))
	owner.Kill()
	ann.await("the page to publish it again", `repaired.includes('camera')`)
	s.eventually("the camera in another track", func() bool {
		now := host.receives()["camera"]
		return now != "" && now != before
	})
}
