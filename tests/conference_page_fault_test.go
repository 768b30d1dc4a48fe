//go:build faults

package tests

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
)

// B9, FC14: a host and two guests take part in browsers with fake microphones and cameras. They receive each other's sound and
// pictures, the server is killed, every page shows the move, and sound and pictures continue on the other one. While there is none, the pages
// wait. A removed guest cannot return, links that admit no one say why before and after joining, and the end is shown.
func TestConferencePage_ServerKilled_GuestsFollowAndSeeIt(t *testing.T) {
	t.Parallel()
	s := newStack(t, withParticipants())
	m := s.conferences()
	units := s.mediaUnits(5)
	const number = "8635000001"
	first := m.open(number, func(c *client.ConferenceSpec) { c.Title = "Weekly planning" })
	owner := units[first.Owner.NodeID]
	other := units[otherUnit[owner.id]]

	host := s.caller(t)
	host.openAs(s, "alice")
	host.do(chromedp.Evaluate[chromedp.Void](`{ location.hash = '#/conferences/` + number + `' }`))
	host.await("the lobby of the host", `document.querySelector('#meeting-name')?.value === 'alice'`)
	host.join("", false)
	host.await("the name of the unit", `document.querySelector('.unit')?.textContent === %s`, owner.id)
	link := host.invite(2)

	ann, ben := s.caller(t), s.caller(t)
	for name, c := range map[string]*caller{"Ann": ann, "Ben": ben} {
		c.do(chromedp.Navigate(link))
		c.await("the lobby of "+name, `document.querySelector('#meeting-name') !== null && document.querySelector('h1').textContent === 'Weekly planning'`)
	}
	require.Equal(t, 0, s.uses(number), "opening a link does not use it")
	ann.check("lobby", "en", 1280)
	ann.join("Ann", true)
	ben.do(chromedp.Click(`header .end button[lang]`, chromedp.NodeVisible))
	ben.join("Ben", true)
	all := []*caller{host, ann, ben}
	for _, c := range all {
		c.meets(3, 2)
	}
	require.Equal(t, 2, s.uses(number))
	ann.await("who speaks", `document.querySelector('.person.speaking') !== null`)
	before := ann.identity()
	ann.do(chromedp.Reload())
	ann.meets(3, 2)
	ann.chose(true, true)
	require.Equal(t, before, ann.identity(), "a reload is the same guest")
	require.Equal(t, 2, s.uses(number))
	for _, c := range all {
		c.check("before", "", 0)
	}

	host.do(chromedp.EmulateViewport(1280, 757))
	host.await("the controls in a low window", `innerHeight === 757 && document.querySelector('.leave').getBoundingClientRect().bottom <= innerHeight`)

	ben.silence()
	owner.Kill()
	for _, c := range all {
		c.moved(1)
	}
	for _, c := range all {
		c.meets(3, 2)
		t.Logf("the page: %s", ask[string](c.tab, `document.querySelector('.latest').textContent`))
	}
	t.Logf("longest time without an audio packet: %d ms", ben.silence())
	host.await("the other unit", `document.querySelector('.unit')?.textContent === %s`, other.id)
	require.Regexp(t, `^The media server failed; back after .* on another one\.$`, ask[string](ann.tab, `document.querySelector('.latest').textContent`))
	require.Contains(t, ask[string](ben.tab, `document.querySelector('.latest').textContent`), "媒体服务器发生故障；恢复用时")
	require.NotContains(t, ask[string](ann.tab, `document.body.textContent`), other.id, "guests do not see the units' ids")
	for _, c := range all {
		c.check("after", "", 0)
	}

	other.Kill()
	for _, c := range all {
		c.await("the interruption", `document.querySelector('.moves li.run') !== null && document.querySelector('.meeting.moving') !== null`)
		c.check("during", "", 0)
		require.Zero(t, ask[int](c.tab, `document.querySelectorAll('.person .tag .icon').length`), "no one is muted")
	}
	host.controls("Mute", "Camera on")
	ann.controls("Mute", "Camera off")
	owner.boot()
	s.awaitNode(owner.id)
	for _, c := range all {
		c.moved(2)
		c.meets(3, 2)
	}

	ann.press(".controls", "Mute")
	host.await("the muted guest", `document.querySelector('[data-identity="`+before+`"] .tag .sr')?.textContent === 'muted'`)
	removed := ben.identity()
	host.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`{ document.querySelector('[data-identity=%q] .remove').click() }`, removed)))
	for _, text := range []string{
		"The guest is disconnected, and no one can join by this link again.",
		"The guest is disconnected, and can join again by this link as a new guest while it admits guests.",
	} {
		host.await(text, `document.querySelector('dialog[open] p')?.textContent === %s`, text)
		host.do(chromedp.Evaluate[chromedp.Void](`{ document.querySelector('dialog[open] [type=checkbox]').click() }`)) // in the end it is checked again
	}
	host.confirm()
	ben.shows("主持人已将您移出会议。")
	ben.check("removed", "", 0)
	ann.meets(2, 1)
	ben.do(chromedp.Reload())
	ben.shows("主持人已将您移出会议。")

	late := s.caller(t)
	join := "http://" + s.httpAddr + "/#/join/"
	used := s.newLink(number)
	late.do(chromedp.Navigate(join + used))
	late.await("the lobby", `document.querySelector('#meeting-name')?.value === ''`)
	status, guest := s.send(http.MethodPost, "/v1/invitations", "", map[string]any{"link": used})
	require.Equal(t, http.StatusOK, status, "%v", guest)
	late.do(chromedp.SendKeys(`#meeting-name`, "Eve"), chromedp.Click(`form button.primary`))
	late.shows("This link was already used.")
	for address, text := range map[string]string{
		link: "This link was revoked.", join + used: "This link was already used.", join + "ABCDEFGHIJKLMNOPQRSTUVWX27": "This link is not valid.",
	} {
		late.do(chromedp.Navigate("about:blank"), chromedp.Navigate(address))
		late.shows(text)
	}
	late.check("refused", "", 0)
	for _, incomplete := range []string{"/#/join", "/#/join/", "/#/join/none"} {
		late.do(chromedp.Navigate("about:blank"), chromedp.Navigate("http://"+s.httpAddr+incomplete))
		late.shows("This link is not valid.")
	}
	late.do(chromedp.Navigate("http://" + s.httpAddr + "/#/conferences/" + number))
	late.await("that hosts sign in", `document.querySelector('h1')?.textContent === 'Sign in to take part as the host.'`)
	_, err := m.EndConference(t.Context(), number)
	require.NoError(t, err)
	ann.shows("The conference has ended.")
	host.shows("The conference has ended.")
	host.do(chromedp.Reload())
	host.shows("The conference has ended.")
	for _, c := range append(all, late) {
		require.NotContains(t, c.complaint(), "Content Security Policy")
	}
}

// B9, FC14: two participants with cameras. After every kill both pictures play. A reload keeps microphones and cameras. A microphone that was
// unmuted just before a move stays on, and one that the server has muted stays muted, with a notice.
func TestConferencePage_TwoCamerasRepeatedKills_PicturesReturn(t *testing.T) {
	t.Parallel()
	s := newStack(t, withParticipants())
	m := s.conferences()
	units := s.mediaUnits(5)
	const number = "8635000002"
	owner := units[m.open(number).Owner.NodeID]
	moved := func(from *mediaUnit) *mediaUnit {
		return units[m.await(number, "on the other unit", func(c berth.Conference) bool { return c.Owner.NodeID != "" && c.Owner.NodeID != from.id }).Owner.NodeID]
	}
	host, ann := s.caller(t), s.caller(t)
	host.openAs(s, "alice")
	host.do(chromedp.Evaluate[chromedp.Void](`{ location.hash = '#/conferences/` + number + `' }`))
	host.await("the lobby of the host", `document.querySelector('#meeting-name')?.value === 'alice'`)
	host.join("", true)
	ann.do(chromedp.Navigate(host.invite(1)))
	ann.await("the lobby of Ann", `document.querySelector('#meeting-name') !== null`)
	ann.join("Ann", true)
	both := []*caller{host, ann}
	for range 5 {
		for _, c := range both {
			c.meets(2, 2)
		}
		killed := owner
		killed.Kill()
		owner = moved(killed)
		for _, c := range both {
			c.await("no open move", `document.querySelector('.moves li.good') !== null && document.querySelector('.moves li.run') === null`)
			c.meets(2, 2)
			c.controls("Mute", "Camera off")
		}
		killed.boot()
		s.awaitNode(killed.id)
	}
	ann.do(chromedp.Reload())
	ann.meets(2, 2)
	ann.chose(true, true)
	host.meets(2, 2)

	audible := `document.querySelector('[data-identity="` + ann.identity() + `"] .tag .icon') === null`
	drain := func() {
		from := owner
		order := func(verb string) {
			status, body := s.send(http.MethodPost, "/v1/nodes/"+from.id+"/"+verb, s.token("op", "operator"), map[string]any{"withinMs": 0})
			require.Less(t, status, 300, "%v", body)
		}
		order("drain")
		owner = moved(from)
		for _, c := range both {
			c.meets(2, 2)
		}
		order("undrain")
	}
	ann.press(".controls", "Mute")
	s.eventually("the unit to report it", func() bool {
		got, err := m.Conference(t.Context(), number, "")
		return err == nil && got.Info != nil && bytes.Contains(got.Info.Live, []byte(`"muted":true`))
	})
	ann.press(".controls", "Unmute")
	ann.await("to be unmuted", `document.querySelector('.controls .toggle').textContent.trim() === 'Mute'`)
	drain()
	require.Never(t, func() bool { return ask[bool](ann.tab, `document.querySelector('.notice') !== null`) }, 4*time.Second, 100*time.Millisecond,
		"the next unit restores mutes with its reports, but she has unmuted")
	host.await("Ann", audible)
	ann.controls("Mute", "Camera off")

	owner.muteSource(number, ann.identity(), "microphone")
	notice := `document.querySelector('.notice')?.textContent === 'You were muted. Press Unmute to speak.'`
	ann.await("the notice", notice)
	drain()
	ann.await("the notice", notice)
	ann.controls("Unmute", "Camera off")
	require.False(t, ask[bool](host.tab, audible), "the mute by the server moves along")
	ann.press(".controls", "Unmute")
	host.await("Ann again", audible)
	ann.await("no notice", `document.querySelector('.notice') === null`)
}

// voice returns a WAV file with a sound that is treated as speech: a pitch with its harmonics, four syllables a second.
func voice(t *testing.T) string {
	t.Helper()
	const rate, seconds = 48000, 4
	samples := make([]int16, rate*seconds)
	for i := range samples {
		at := float64(i) / rate
		pitch, v := 150+40*math.Sin(2*math.Pi*0.5*at), 0.0
		for h := 1.0; h <= 12; h++ {
			v += math.Sin(2*math.Pi*pitch*h*at) / h
		}
		samples[i] = int16(9000 * v * (0.55 - 0.45*math.Cos(2*math.Pi*4*at)))
	}
	var b bytes.Buffer
	size := uint32(2 * len(samples))
	for _, part := range []any{
		[]byte("RIFF"), 36 + size, []byte("WAVEfmt "), uint32(16), uint16(1), uint16(1), uint32(rate), uint32(2 * rate), uint16(2), uint16(16), []byte("data"), size, samples,
	} {
		require.NoError(t, binary.Write(&b, binary.LittleEndian, part))
	}
	file := filepath.Join(t.TempDir(), "voice.wav")
	require.NoError(t, os.WriteFile(file, b.Bytes(), 0o600))
	return file
}

// caller is a participant in a browser.
type caller struct {
	*tab
	s   *stack
	axe string
}

// caller returns a participant with an own browser: the simulated camera of one browser sometimes delivers nothing after two tabs have
// opened it again at the same time.
func (s *stack) caller(t *testing.T) *caller {
	t.Helper()
	axe, err := os.ReadFile(filepath.Join("..", "api", "console", "node_modules", "axe-core", "axe.min.js"))
	require.NoError(t, err, "axe-core is not installed: run `make console`")
	return &caller{openTab(t, startBrowser(t, chromedp.Flag("use-fake-device-for-media-stream", true), chromedp.Flag("use-fake-ui-for-media-stream", true),
		chromedp.Flag("use-file-for-fake-audio-capture", voice(t)), chromedp.Flag("disable-backgrounding-occluded-windows", true))), s, string(axe)}
}

// measureSilence makes the page note the longest time without an audio packet, apart from what it measures itself. It must be called before
// the participant joins.
const measureSilence = `{
	const Connection = window.RTCPeerConnection, all = [];
	window.RTCPeerConnection = class extends Connection { constructor(...args) { super(...args); all.push(this) } };
	let packets = 0, at = 0;
	window.silence = 0;
	setInterval(async () => {
		let n = 0;
		for (const c of all) for (const s of (await c.getStats()).values()) if (s.type === 'inbound-rtp' && s.kind === 'audio') n += s.packetsReceived;
		const fewer = n <= packets; // a connection was closed
		packets = n;
		if (fewer) return;
		if (at) window.silence = Math.max(window.silence, performance.now() - at);
		at = performance.now();
	}, 20);
}`

// silence returns the longest time without an audio packet in ms since the last call.
func (c *caller) silence() int {
	c.Helper()
	return ask[int](c.tab, `(() => { const s = Math.round(window.silence); window.silence = 0; return s })()`)
}

// join presses "Join", with a microphone and perhaps a camera.
func (c *caller) join(name string, camera bool) {
	c.Helper()
	if name != "" {
		c.do(chromedp.SendKeys(`#meeting-name`, name))
	}
	if camera {
		c.do(chromedp.Click(`.choices .toggle:nth-child(2)`))
		c.await("the preview of the camera", `document.querySelector('.preview video')?.videoWidth > 0`)
		c.shoot("lobby-" + name)
	}
	c.do(chromedp.Evaluate[chromedp.Void](measureSilence), chromedp.Click(`form button.primary`))
	c.await("the conference", `document.querySelector('.meeting .now .done') !== null`)
}

// meets waits until n participants are present, and until the sound of the other ones and the pictures of all cameras play.
func (c *caller) meets(n, cameras int) {
	c.Helper()
	c.await(fmt.Sprintf("%d participants", n), `document.querySelectorAll('.person:not(.away)').length === %s && document.querySelector('.meeting .now .done') !== null`, n)
	c.do(chromedp.Evaluate[chromedp.Void](`{ window.shownAt = new WeakMap() }`))
	c.await("their sound and pictures", `document.querySelectorAll('.person audio').length === %s && document.querySelectorAll('.person video').length === %s &&
		[...document.querySelectorAll('.person :is(audio, video)')].every((e) => {
			if (!shownAt.has(e)) shownAt.set(e, e.currentTime);
			return e.srcObject?.active && !e.paused && e.currentTime > shownAt.get(e);
		})`, n-1, cameras)
}

// controls requires what the buttons offer.
func (c *caller) controls(microphone, camera string) {
	c.Helper()
	require.Equal(c, []string{microphone, camera}, ask[[]string](c.tab, `[...document.querySelectorAll('.controls .toggle:not(.leave)')].map((e) => e.textContent.trim())`))
}

// chose waits until the tab keeps what the participant has chosen.
func (c *caller) chose(microphone, camera bool) {
	c.Helper()
	c.await("the stored choice", `Object.entries(sessionStorage).some(([k, v]) => {
		const kept = k.startsWith('berth.conference.') ? JSON.parse(v) : {};
		return kept.microphone === %s && kept.camera === %s;
	})`, microphone, camera)
}

// moved waits until the page has shown n moves, each with its end.
func (c *caller) moved(n int) {
	c.Helper()
	c.await(fmt.Sprintf("%d moves", n), `document.querySelectorAll('.moves li.good').length === %s && document.querySelector('.moves li.run') === null`, n)
}

// shows waits until the page shows why the participant is not in the conference.
func (c *caller) shows(text string) {
	c.Helper()
	c.await(text, `document.querySelector('.out h1')?.textContent === %s`, text)
}

func (c *caller) identity() string {
	return ask[string](c.tab, `[...document.querySelectorAll('.person')].find((e) => /^(you|您)$/.test(e.querySelector('small')?.textContent ?? '')).dataset.identity`)
}

// invite creates a link on the page.
func (c *caller) invite(guests int) string {
	c.Helper()
	c.press(".invitations", "New link")
	c.await("the dialog", `document.querySelector('dialog[open] input[type=number]') !== null`)
	c.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`{ const e = document.querySelector('dialog[open] input[type=number]'); e.value = '%d'; e.dispatchEvent(new Event('input', { bubbles: true })) }`, guests)))
	c.confirm()
	c.await("the address", `document.querySelector('.address input')?.value.includes('#/join/')`)
	return ask[string](c.tab, `document.querySelector('.address input').value`)
}

// check requires that the page is accessible as it is shown, and takes screenshots. Without a width, it is checked at those of a desktop and
// a phone.
func (c *caller) check(name, lang string, width int64) {
	c.Helper()
	if lang == "" {
		lang = ask[string](c.tab, `document.documentElement.lang`)
	}
	widths := []int64{390, 1280}
	if width != 0 {
		widths = []int64{width}
	}
	who := ask[string](c.tab, `document.querySelector('.address') ? 'host' : 'guest'`)
	c.shoot(fmt.Sprintf("conference-%s-%s-%s", name, who, lang))
	for _, w := range widths {
		c.accessible(c.axe, name, w)
	}
}

// uses returns how many guests the links of a conference have admitted.
func (s *stack) uses(e164 string) (n int) {
	s.tb.Helper()
	status, body := s.send(http.MethodGet, "/v1/conferences/"+e164+"/links", s.token("alice"), nil)
	require.Equal(s.tb, http.StatusOK, status, "%v", body)
	for _, k := range body["links"].([]any) {
		n += int(k.(map[string]any)["uses"].(float64))
	}
	return n
}

// newLink returns the secret of a new link for one guest.
func (s *stack) newLink(e164 string) string {
	s.tb.Helper()
	status, body := s.send(http.MethodPost, "/v1/conferences/"+e164+"/links", s.token("alice"), map[string]any{})
	require.Equal(s.tb, http.StatusCreated, status, "%v", body)
	return body["secret"].(string)
}
