package extract

import (
	"strings"
	"unicode"
)

// namesAndWords are frequent names, places and words of the languages that are written in Windows-1252. Each has a letter beside ASCII. Read
// in the table of another language they are no words.
var namesAndWords = elements(`
	müller köln düsseldorf münchen nürnberg zürich jürgen jörg günther günter schäfer schröder könig krüger weiß groß möller köhler schütz
	göttingen lübeck münster tübingen würzburg saarbrücken österreich straße größe geschäftsführer geschäft fähigkeiten tätigkeit
	tätigkeiten universität qualität persönliche für über können möchte während führung prüfung stärken jäger bäcker händler gärtner
	verkäufer verfügbar erklärung ausländische grüße schöne käthe bärbel röntgen böttcher förster hübner krämer löffler lütke mühlheim
	garcía gonzález rodríguez fernández lópez martínez sánchez pérez gómez martín jiménez hernández díaz álvarez muñoz gutiérrez domínguez
	vázquez ramírez núñez peña ibáñez ordóñez yáñez castaño zúñiga cañas maría josé jesús ángel andrés joaquín ramón rubén óscar iván víctor
	raúl sofía lucía inés belén begoña concepción asunción íñigo sebastián tomás nicolás simón germán hernán bogotá medellín cancún méxico
	perú panamá málaga cádiz córdoba león coruña logroño españa español española españoles señor señora niño niña año años mañana diseño
	educación formación información dirección teléfono currículum ingeniería técnico técnica gestión administración atención también más
	joão são antónio antônio luís inês mónica mônica conceição assunção gonçalves gonçalo araújo magalhães guimarães simões brandão leitão
	falcão brasília maranhão ceará goiás paraná amazônia português portuguesa educação formação informação experiência inglês região gestão
	programação comunicação produção não também até você três mãe irmã informações funções operações solução licenciatura estágio
	françois françoise rené renée andré andrée hélène jérôme frédéric éric émile émilie élodie céline chloé zoé zoë noël noëlle joël joëlle
	gaël gaëlle anaïs loïc aurélie aurélien benoît cécile clémence clément mélanie stéphane stéphanie sébastien valérie véronique thérèse
	geneviève agnès irène hervé lefèvre orléans besançon nîmes chambéry québec montréal genève développeur développeuse ingénieur expérience
	expérimenté compétences études diplôme école français française année années même très après déjà être sécurité société référence
	téléphone président développement équipe équipes qualité rémunération naïve café résumé façade curaçao fiancé cliché protégé soirée
	göteborg malmö västerås örebro linköping jönköping umeå luleå gävle växjö västra östersund åsa håkan göran björn björk sjöström
	bergström lindström söderberg åkesson höglund öberg århus ærø ålborg københavn sørensen jørgensen møller nørgaard østergaard bjørn søren
	jørgen håkon tromsø bodø ålesund ødegård ødegaard bærum næss rønne lønn også når får från för där är både många även
	jyväskylä hämäläinen mäkinen mäkelä järvi järvinen väinö päivi hyvä työ seinäjoki hämeenlinna työkokemus
	guðrún jónsdóttir þór þórður sigurðsson jón reykjavík ísland
	niccolò nicolò forlì città perché più già però può sarà attività università disponibilità capacità responsabilità possibilità
	daniël michaël raphaël israël coördinator coördinatie ideeën één financiën italië belgië patiënten efficiënt geïnteresseerd`)

// recognised reports whether a text has known words with each of the letters that would be others in one of the other readings.
func recognised(text string, others []string) bool {
	letters := map[rune]bool{}
	for word := range strings.FieldsFuncSeq(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) }) {
		if namesAndWords[word] {
			for _, r := range word {
				letters[r] = true
			}
		}
	}
	if len(letters) == 0 {
		return false
	}
	read := []rune(text)
	for _, other := range others {
		if !sameBeside([]rune(other), read, letters) {
			return false
		}
	}
	return true
}

// sameBeside reports whether two readings of the same bytes are the same but for some letters.
func sameBeside(other, read []rune, but map[rune]bool) bool {
	if len(other) != len(read) {
		return false
	}
	for i, r := range read {
		if r != other[i] && !but[unicode.ToLower(r)] {
			return false
		}
	}
	return true
}
