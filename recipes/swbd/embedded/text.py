"""What is said: a grammar of small talk on the telephone, written for this project.

A sentence is a template whose slots are filled from tables. It is written the way the ISIP transcripts write (acronyms in
capitals, ``[laughter-word]``, ``[it'n/isn't]``, ``we-``), so that every text rule of the recipe has work to do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

_TABLES: dict[str, str] = {
    "person": "my wife|my husband|my brother|my sister|my neighbor|my mother|my father|my uncle|my daughter|my son|our teacher"
    "|a friend of mine|the doctor|the lady next door|my boss|the kids|my cousin|everybody|nobody|somebody",
    "animal": "dog|cat|horse|bird|rabbit|goat|turtle|kitten",
    "color": "red|blue|green|white|black|brown|yellow|gray",
    "size": "big|small|old|new|little|huge|nice|cheap|expensive",
    "thing": "car|truck|house|garden|boat|computer|kitchen|garage|bicycle|piano|camera|television|fence|roof|porch|yard",
    "place": "texas|dallas|boston|california|florida|chicago|the city|the country|the mountains|the beach|the lake|the store"
    "|school|church|the office|the hospital|new york|the south|the north",
    "food": "chicken|pizza|salad|bread|soup|fish|steak|pasta|cake|fruit|vegetables|rice|beans|cheese|coffee|tea",
    "season": "summer|winter|spring|fall",
    "weather": "hot|cold|windy|rainy|humid|dry|cloudy|sunny|warm|cool",
    "day": "monday|tuesday|wednesday|thursday|friday|saturday|sunday",
    "number": "two|three|four|five|six|seven|eight|nine|ten|twenty|thirty|fifty|a hundred",
    "time": "last year|last week|yesterday|every morning|every night|on {day}|in the {season}|a long time ago|right now"
    "|years ago|tomorrow|this weekend",
    "job": "teacher|nurse|lawyer|farmer|student|manager|driver|writer|engineer|salesman",
    "sport": "football|baseball|basketball|tennis|golf|soccer|swimming|fishing|hiking|running",
    "show": "the news|a movie|a game|the concert|a play|that program|the paper|a good book|a magazine",
    "org": "I.B.M.|T.I.|the U.S.|the I.R.S.|the F.B.I.|A.T.&T.|the P.T.A.",
    "verb": "like|love|enjoy|hate|need|want|miss|remember",
    "did": "bought|sold|painted|fixed|built|found|lost|broke|cleaned|moved|rented|borrowed",
    "went": "went|drove|moved|traveled|walked|flew|came",
    "feel": "happy|tired|busy|lucky|sorry|afraid|excited|worried|glad|surprised",
    "opinion": "wonderful|terrible|interesting|boring|important|difficult|easy|funny|strange|great|fair|awful",
    "hedge": "I think|I guess|I believe|I suppose|you know|I mean|it seems like|I'm sure|I don't know if",
    "open": "well|so|and|but|yeah|oh|now|see|actually|basically",
    "hesitation": "uh|um",
}

_TEMPLATES = """
{open} {hedge} the {weather} weather in {place} is {opinion}
{person} {did} a {size} {color} {thing} {time}
we {went} to {place} {time} and it was really {opinion}
do you {verb} to watch {show} {time}
{hesitation} I {verb} {sport} but I don't have the time for it
{person} used to work for {org} {time}
we have {number} {animal}s and a {size} {animal}
it gets so {weather} here in the {season}
{open} I was {feel} when {person} {went} to {place}
what kind of {thing} do you have
I cook {food} and {food} {time}
{hedge} {person} would {verb} {food} more than {food}
my {thing} is {number} years old and it's still {opinion}
{person} is a {job} in {place} and she is very {feel}
{open} they {did} the {thing} for {number} dollars
how many {animal}s do you have
I have been a {job} for {number} years
{hesitation} we don't {verb} the {thing} that {person} {did}
{open} that's {opinion} because {person} lives in {place}
the {size} {thing} was {color} before {person} {did} it
{open} it is {weather} {time} so we stay at home
did you see {show} {time} about {org}
I'd say {org} is {opinion} for a {job}
we play {sport} {time} when it isn't too {weather}
there are {number} people in our family and they all {verb} {sport}
{hedge} you can't find a {size} {thing} in {place} anymore
{person} said {sport} was {opinion} and I was {feel}
{open} where do you live in {place}
he said he {did} the {color} {thing} and then he {went} home
I grow {food} and {food} in the garden {time}
""".strip().splitlines()

_BACKCHANNELS = "uh-huh|yeah|right|oh really|okay|sure|um-hum|exactly|oh yeah|huh|that's right|I see|yes|no|wow"

# A second word in front of its whole: broken off, and how the engine is to say what was said.
_PARTIALS = {"th-": "thuh", "we-": "weh", "be-": "bee", "wa-": "wah", "go-": "goh", "ha-": "hah", "so-": "soh"}
_NAMES = {"zelvyn": "zelvin", "quorrick": "kworik", "brabbleton": "brabbleton"}  # in no dictionary
_COINED = {"yuppieish": "yuppyish", "gardenwise": "gardenwise"}

# What the transcripts write for a word, beside what the engine says.
_MARKED = {"[it'n/isn't]": "itn", "them_1": "em", "about_1": "bout"}

CONTRACTIONS = {
    "IT'S": ("IT IS", "IT HAS"),
    "THAT'S": ("THAT IS", "THAT HAS"),
    "I'M": ("I AM",),
    "I'D": ("I WOULD", "I HAD"),
    "DON'T": ("DO NOT",),
    "ISN'T": ("IS NOT",),
    "CAN'T": ("CAN NOT",),
}


@dataclass(frozen=True)
class Token:
    """A token of a transcript, and what the engine says for it; ``None`` is a sound it does not make (laughter, noise)."""

    written: str
    spoken: str | None


def sentence(rng: np.random.Generator) -> list[Token]:
    """Make a sentence, with the markings of spontaneous speech here and there."""
    text = str(rng.choice(_TEMPLATES))
    while "{" in text:
        text = re.sub(r"\{(\w+)\}", lambda match: str(rng.choice(_TABLES[match[1]].split("|"))), text, count=1)
    words = text.split()
    tokens: list[Token] = []
    for place, word in enumerate(words):
        chance = rng.random()
        partial = f"{word[:2].lower()}-"
        if chance < 0.04 and partial in _PARTIALS and len(word) > 2:
            tokens.append(Token(partial, _PARTIALS[partial]))
        if 0.04 <= chance < 0.06 and place:
            tokens.append(Token(*(2 * [str(rng.choice(["uh", "um"]))])))
        if word == "isn't" and chance < 0.5:
            tokens.append(Token("[it'n/isn't]", _MARKED["[it'n/isn't]"]))
        elif word == "about" and chance < 0.5:
            tokens.append(Token("about_1", _MARKED["about_1"]))
        elif 0.06 <= chance < 0.075 and word.isalpha():
            tokens.append(Token(f"[laughter-{word}]", word))
        else:
            tokens.append(Token(word, _said(word)))
    extra = rng.random()
    if extra < 0.04:
        tokens.append(Token("[laughter]", None))
    elif extra < 0.08:
        tokens.append(Token("[noise]", None))
    elif extra < 0.10:
        tokens.insert(0, Token("[vocalized-noise]", None))
    elif extra < 0.115:
        name = str(rng.choice(sorted(_NAMES)))
        tokens += [Token(word, word) for word in ("said", "mister")] + [Token(name, _NAMES[name])]
    elif extra < 0.13:
        coined = str(rng.choice(sorted(_COINED)))
        tokens += [Token("kind", "kind"), Token("of", "of"), Token(f"{{{coined}}}", _COINED[coined])]
    elif extra < 0.15:
        tokens = [Token("<b_aside>", None), *tokens, Token("<e_aside>", None)]
    return tokens


def backchannel(rng: np.random.Generator) -> list[Token]:
    """A short answer."""
    return [Token(word, _said(word)) for word in str(rng.choice(_BACKCHANNELS.split("|"))).split()]


def _said(word: str) -> str:
    """Spelling that the engine says as people do: letters one by one, hesitations as sounds."""
    if re.fullmatch(r"(?:[A-Z]\.|&)+", word):
        return " ".join("and" if letter == "&" else letter.lower() for letter in word.replace(".", ""))
    return {"uh-huh": "uh huh", "um-hum": "um hum", "I": "i"}.get(word, word)


def vocabulary() -> list[str]:
    """Every word the grammar can write but the names and coinages, in transcript form, lower case."""
    text = " ".join([*_TABLES.values(), *_TEMPLATES, _BACKCHANNELS]).replace("|", " ")
    words = {word.lower() for word in re.sub(r"\{\w+\}", " ", text).split() if word != "s"}
    plurals = {f"{animal}s" for animal in _TABLES["animal"].split("|")}
    return sorted(words | plurals | {"it'n", "said", "mister", "kind", "of", *_PARTIALS})
