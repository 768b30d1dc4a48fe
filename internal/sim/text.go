package sim

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// topic is what a section of a text, or a property of a schema, is about.
type topic string

const (
	about        topic = "about"
	duties       topic = "duties"
	requirements topic = "requirements"
	wishes       topic = "wishes"
	skills       topic = "skills"
)

// topics lists the names of headings and properties in their order of precedence.
var topics = []struct {
	topic topic
	names *regexp.Regexp
}{
	{wishes, heading(`nice.?to.?haves?|preferred(?: \w+)?|bonus(?: points)?|加分项|优先条件`)},
	{requirements, heading(`requirements?|must.?haves?|qualifications?|what you bring|your profile|要求|任职资格|必备条件`)},
	{duties, heading(`responsibilities|duties|tasks|what you(?: wi|.)ll do|职责|工作内容`)},
	{"offer", heading(`offer|benefits|perks|福利|待遇|薪酬`)},
	{about, heading(`about(?: \w+){0,3}|summary|overview|answer|简介|概述|评价`)},
	{"experience", heading(`experience|employment history|career|经历|经验`)},
	{"projects", heading(`projects|项目`)},
	{"education", heading(`education|教育背景|学历`)},
	{skills, heading(`skills|skill.?groups|technologies|技能|技术栈`)},
	{"languages", heading(`languages|语言|语言能力`)},
}

// heading matches one of the names, also behind up to three words: "Professional experience", "岗位职责".
func heading(names string) *regexp.Regexp {
	return regexp.MustCompile(`(?i)^(?:[\pL'’]+ ){0,3}\p{Han}{0,4}(?:` + names + `)$`)
}

func topicOf(name string) topic {
	for _, t := range topics {
		if t.names.MatchString(name) {
			return t.topic
		}
	}
	return ""
}

// line is one line or sentence of a text, without its bullet. Its topic is that of the heading above it.
type line struct {
	text   string
	words  []string
	topic  topic
	bullet bool
}

const (
	maxLines = 2000 // bounds the work for one text
	maxQuote = 600
	longLine = 200 // longer lines are cut into sentences
)

var (
	bulletMark  = regexp.MustCompile(`^(?:[-–*]\s+|[•·●○▪■◆]\s*|\d{1,2}(?:[.)]\s+|[、．]\s*))`)
	sentenceEnd = regexp.MustCompile(`[.!?;]\s+|[。！？；]`)
)

// readLines cuts a posting or résumé into lines. A heading names a topic; text may follow it behind a colon.
func readLines(text string) []line {
	var out []line
	var at line
	for raw := range strings.Lines(text) {
		body := strings.TrimSpace(strings.TrimLeft(raw, "# "))
		name, rest, _ := strings.Cut(strings.Replace(strings.Trim(body, "*【】"), "：", ":", 1), ":")
		if t := topicOf(name); t != "" {
			at.topic, body = t, strings.TrimSpace(rest)
		}
		mark := bulletMark.FindString(body)
		at.bullet = mark != ""
		body = body[len(mark):]
		if len(body) > longLine {
			body = sentenceEnd.ReplaceAllString(body, "$0\n")
		}
		for part := range strings.Lines(body) {
			at.text = clip(strings.Trim(part, " \t\r\n;；"), maxQuote)
			at.words = words(at.text)
			if at.text != "" && len(out) < maxLines {
				out = append(out, at)
			}
		}
	}
	return out
}

// texts returns the lines about the given topics.
func texts(lines []line, topics ...topic) []string {
	var out []string
	for _, l := range lines {
		if slices.Contains(topics, l.topic) {
			out = append(out, l.text)
		}
	}
	return out
}

var (
	separator = regexp.MustCompile(`\s*[,;/，；、。与和或]\s*|\s+(?:and|or)\s+`)
	years     = regexp.MustCompile(`(?:^|\D)([1-5]?\d)\+?\s*(?:years?\b|年)`)
	wordRun   = regexp.MustCompile(`\p{Han}+|[^\p{Han}\s\pP\pS]+(?:[.'’][^\p{Han}\s\pP\pS]+)*[+#]*`)
	nameRun   = regexp.MustCompile(`\p{Lu}[\pL\pN.+#]*(?: \p{Lu}[\pL\pN.+#]*)*|\b[a-z]+\p{Lu}[\pL\pN]*`)
	fillerZH  = regexp.MustCompile(`具备|良好的?|熟悉|熟练|精通|掌握|了解|使用|以上|相关|经验|能力|精神|学历|负责|架构`)
	filler    = strings.Fields(`a an the and or we you our your is are be in of on at to for with have as good strong solid clear
		excellent proven deep basic knowledge command experience understanding familiarity ability skills degree bachelor
		bachelor's similar working who`)
)

// terms cuts a requirement into the things that can be looked for one by one. A line about years is one term.
func terms(text string) []string {
	if yearsIn(text) > 0 {
		return []string{text}
	}
	return slices.DeleteFunc(separator.Split(text, -1), func(s string) bool { return len(words(s)) == 0 })
}

// yearsIn returns the number of years that a line mentions, 0 if none.
func yearsIn(text string) int {
	m := years.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1]) // two digits
	return n
}

// words returns the significant words of a text: Latin ones in lower case and without a plural's s, but short ones as they
// are written, because "Go" is not "go"; pairs of Chinese characters.
func words(text string) []string {
	var out []string
	for _, w := range wordRun.FindAllString(fillerZH.ReplaceAllString(text, " "), -1) {
		switch runes := []rune(w); {
		case isCJK(runes[0]):
			for ; len(runes) > 1; runes = runes[1:] {
				out = append(out, string(runes[:2]))
			}
		case slices.Contains(filler, strings.ToLower(w)):
		case len(w) > 3:
			out = append(out, strings.TrimSuffix(strings.ToLower(w), "s"))
		case len(w) > 1:
			out = append(out, w)
		}
	}
	return out
}

// names returns the names in a text, neighbours joined: "GitHub Actions".
func names(text string) []string {
	out := []string{}
	for _, run := range nameRun.FindAllString(text, -1) {
		parts := slices.DeleteFunc(strings.Fields(run), func(w string) bool { return len(words(w)) == 0 })
		name := strings.TrimRight(strings.Join(parts, " "), ".")
		if name != "" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// find returns the line with the most words of a term, if it has more than half of them. If the term has names, only
// these count. A line about years must mention at least as many.
func find(term string, lines []line) (found string, ok bool) {
	wanted := words(strings.Join(names(term), " "))
	if len(wanted) == 0 {
		wanted = words(term)
	}
	n, most := yearsIn(term), len(wanted)/2
	for _, l := range lines {
		if n > 0 && yearsIn(l.text) >= n {
			return l.text, true
		}
		shared := 0
		for _, w := range wanted {
			if slices.Contains(l.words, w) {
				shared++
			}
		}
		if n == 0 && shared > most {
			found, most, ok = l.text, shared, true
		}
	}
	return found, ok
}

// clip returns at most n characters of s.
func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return strings.TrimSpace(string(r[:n]))
	}
	return s
}

func isCJK(r rune) bool { return unicode.Is(unicode.Han, r) }
