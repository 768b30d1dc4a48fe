package sim

import (
	"encoding/json"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// section is the part of a posting or résumé that a line stands in.
type section string

const (
	secTop              section = "top"
	secAbout            section = "about"
	secResponsibilities section = "responsibilities"
	secRequirements     section = "requirements"
	secPreferred        section = "preferred"
	secOffer            section = "offer"
	secExperience       section = "experience"
	secProjects         section = "projects"
	secEducation        section = "education"
	secSkills           section = "skills"
	secLanguages        section = "languages"
	secOther            section = "other"
)

// line is one line of a document without its bullet or number.
type line struct {
	text    string
	lower   string // lowerASCII(text)
	section section
	bullet  bool
}

// document is a posting or résumé cut into lines and sections.
type document struct{ lines []line }

// headings maps what a heading says, lower case and without spaces, to its section. The keys of the schemas'
// JSON are among them, so that a summary reads like the text it was made of.
var headings = map[section]string{
	secAbout: "about,abouttherole,aboutthejob,aboutus,jobdescription,thejob,therole,overview,summary,profile,aboutme,objective," +
		"headline,context,职位简介,岗位简介,公司简介,公司介绍,职位描述,岗位描述,职位概述,个人简介,个人总结,自我评价,个人优势,简介,概述,摘要",
	secResponsibilities: "responsibilities,yourresponsibilities,keyresponsibilities,whatyouwilldo,whatyou'lldo,duties,yourtasks," +
		"tasks,岗位职责,工作职责,工作内容,职责,职责描述,主要职责",
	secRequirements: "requirements,jobrequirements,qualifications,requiredqualifications,minimumqualifications,whatyoubring," +
		"whatwe'relookingfor,whatwearelookingfor,whowearelookingfor,yourprofile,musthave,musthaves,required,requiredskills," +
		"任职要求,岗位要求,职位要求,任职资格,招聘要求,要求,必备条件,必须具备,硬性要求",
	secPreferred: "nicetohave,nicetohaves,preferred,preferredqualifications,bonus,bonuspoints,plus,pluses,desirable," +
		"加分项,优先条件,优先考虑,优先,加分条件",
	secOffer: "whatweoffer,weoffer,benefits,perks,compensation,salary,薪资福利,福利待遇,薪酬福利,我们提供,福利,待遇",
	secExperience: "experience,workexperience,professionalexperience,employment,employmenthistory,workhistory,career," +
		"工作经历,工作经验,职业经历,实习经历,任职经历,经历",
	secProjects:  "projects,selectedprojects,项目经历,项目经验,项目",
	secEducation: "education,educationandtraining,academicbackground,教育背景,教育经历,学历,教育",
	secSkills: "skills,technicalskills,coreskills,keyskills,skillgroups,technologies,techstack,strengths," +
		"专业技能,技能,技术栈,技能特长,核心技能,掌握技能,技能清单",
	secLanguages: "languages,语言,语言能力",
	secOther: "references,certifications,certificates,interests,hobbies,awards,publications,gaps,missing,changes," +
		"证书,荣誉,奖项,兴趣爱好,推荐人",
}

var headingSection = func() map[string]section {
	out := map[string]section{}
	for _, sec := range []section{
		secAbout, secResponsibilities, secRequirements, secPreferred, secOffer, secExperience, secProjects,
		secEducation, secSkills, secLanguages, secOther,
	} {
		for _, h := range strings.Split(headings[sec], ",") {
			if _, taken := out[h]; !taken {
				out[h] = sec
			}
		}
	}
	return out
}()

var bulletMark = regexp.MustCompile(`^(?:[•·●○▪■◆\-–—*+¢«»>]+\s+|[•●○▪■◆]\s*|\(?\d{1,2}[.)、．]\s*|[（(]\d{1,2}[)）]\s*|\.\s*)`)

// parseDocument cuts a posting or résumé into lines and sections. JSON, such as a summary of an earlier step, is
// read as headings and bullets. Lines in which the stand-in names itself are left out.
func parseDocument(text string) document {
	if flat, ok := flattenJSON(text); ok {
		text = flat
	}
	var d document
	sec := secTop
	for raw := range strings.Lines(text) {
		raw = withoutNotice(strings.TrimSpace(strings.ReplaceAll(clip(raw, maxLine), "**", "")))
		if raw == "" || strings.Trim(raw, "-=_*`#~ ") == "" {
			continue
		}
		if s, rest, ok := heading(raw); ok {
			sec = s
			if rest == "" {
				continue
			}
			raw = rest
		}
		body := strings.TrimSpace(strings.TrimLeft(raw, "# "))
		l := line{section: sec}
		if m := bulletMark.FindString(body); m != "" && len(m) < len(body) {
			l.bullet = true
			body = strings.TrimSpace(body[len(m):])
		}
		for _, part := range sentences(body) {
			l.text, l.lower = part, lowerASCII(part)
			d.lines = append(d.lines, l)
		}
		if len(d.lines) >= maxLines {
			break
		}
	}
	return d
}

// Both bound the work one text can make; what comes after is not read.
const (
	maxLines = 2000
	maxLine  = 20_000 // characters
)

const longLine = 200 // characters from which a line is a paragraph

// sentences cuts a paragraph into its sentences, so that what is quoted from it stays short; other lines stay whole.
func sentences(text string) []string {
	if utf8.RuneCountInString(text) <= longLine {
		return []string{text}
	}
	var out []string
	for _, s := range strings.SplitAfter(sentenceEnd.ReplaceAllString(text, "$0\n"), "\n") {
		if s = strings.TrimSpace(s); s != "" {
			out = append(out, s)
		}
	}
	return out
}

var sentenceEnd = regexp.MustCompile(`[.!?;]\s+|[。！？；]`)

// heading tells whether a line names a section; rest is what follows the colon on the same line.
func heading(raw string) (sec section, rest string, ok bool) {
	name := strings.Trim(raw, "#[]【】<> \t")
	if i := strings.IndexAny(name, ":："); i >= 0 {
		_, size := utf8.DecodeRuneInString(name[i:])
		name, rest = name[:i], strings.TrimSpace(name[i+size:])
	}
	key := strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r), r == '_', r == '/':
			return -1
		case r == '’':
			return '\''
		default:
			return unicode.ToLower(r)
		}
	}, name)
	sec, ok = headingSection[key]
	return sec, rest, ok
}

// in lists the lines of the given sections.
func (d document) in(secs ...section) []line {
	var out []line
	for _, l := range d.lines {
		for _, s := range secs {
			if l.section == s {
				out = append(out, l)
			}
		}
	}
	return out
}

// text is the whole document again, a line each.
func (d document) text() string {
	var b strings.Builder
	for _, l := range d.lines {
		b.WriteString(l.text)
		b.WriteByte('\n')
	}
	return b.String()
}

// label is the value of the first "Name: value" line whose name is one of names (lower case).
func (d document) label(names ...string) string {
	for _, l := range d.lines {
		i := strings.IndexAny(l.text, ":：")
		if i <= 0 {
			continue
		}
		_, size := utf8.DecodeRuneInString(l.text[i:])
		name := strings.ToLower(strings.TrimSpace(l.text[:i]))
		for _, n := range names {
			if v := strings.TrimSpace(l.text[i+size:]); name == n && v != "" {
				return v
			}
		}
	}
	return ""
}

// flattenJSON writes a JSON object as headings, "name: value" lines and bullets, in its own order.
func flattenJSON(text string) (string, bool) {
	text = strings.TrimSpace(text)
	text = strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(text, "```json"), "```"), "```"))
	if !strings.HasPrefix(text, "{") || !json.Valid([]byte(text)) {
		return "", false
	}
	var b strings.Builder
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	flattenValue(dec, &b, "")
	return b.String(), true
}

// flattenValue reads one value. Errors cannot come: the text was checked to be valid.
func flattenValue(dec *json.Decoder, b *strings.Builder, key string) {
	tok, err := dec.Token()
	if err != nil {
		return
	}
	switch tok {
	case json.Delim('{'):
		for dec.More() {
			name, _ := dec.Token()
			s, _ := name.(string)
			flattenValue(dec, b, s)
		}
		_, _ = dec.Token()
	case json.Delim('['):
		if _, isHeading := headingSection[strings.ToLower(key)]; isHeading {
			b.WriteString(key + "\n")
		}
		for dec.More() {
			flattenItem(dec, b)
		}
		_, _ = dec.Token()
	case nil:
	default:
		writeField(b, key, tok)
	}
}

// flattenItem reads one value of an array: a scalar is a bullet, an object a header line of its scalars in their
// order, followed by the bullets of its arrays.
func flattenItem(dec *json.Decoder, b *strings.Builder) {
	tok, err := dec.Token()
	if err != nil || tok == nil {
		return
	}
	if tok != json.Delim('{') {
		if tok == json.Delim('[') {
			for dec.More() {
				flattenItem(dec, b)
			}
			_, _ = dec.Token()
			return
		}
		b.WriteString("- " + scalar(tok) + "\n")
		return
	}
	var head []string
	var rest strings.Builder
	for dec.More() {
		_, _ = dec.Token() // the name says less than the order
		value, _ := dec.Token()
		switch value {
		case json.Delim('['):
			for dec.More() {
				flattenItem(dec, &rest)
			}
			_, _ = dec.Token()
		case json.Delim('{'):
			for dec.More() {
				n, _ := dec.Token()
				s, _ := n.(string)
				flattenValue(dec, &rest, s)
			}
			_, _ = dec.Token()
		case nil:
		default:
			head = append(head, scalar(value))
		}
	}
	_, _ = dec.Token()
	if len(head) > 0 {
		b.WriteString(strings.Join(head, " · ") + "\n")
	}
	b.WriteString(rest.String())
}

func writeField(b *strings.Builder, key string, tok json.Token) {
	v := scalar(tok)
	if v == "" {
		return
	}
	switch key {
	case "":
		b.WriteString(v + "\n")
	case "employment": // a heading elsewhere
		b.WriteString("Employment type: " + v + "\n")
	case "yearsOfExperience":
		b.WriteString("headline\n" + v + " years of experience\n")
	default:
		b.WriteString(key + ": " + v + "\n")
	}
}

func scalar(tok json.Token) string {
	switch v := tok.(type) {
	case string:
		return strings.Join(strings.Fields(v), " ")
	case json.Number:
		return v.String()
	case bool:
		if v {
			return "true"
		}
		return "false"
	default:
		return ""
	}
}
