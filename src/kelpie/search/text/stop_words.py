"""Stop words: the words of a question that nearly every text of its language has, so that they only favour long texts.

They are left out of queries, never of the index: a change here needs no new index. A query is of the language of which
it has the most such words, and of English if in doubt. The words are as `tokenizer` splits them, without accents.
"""

from collections.abc import Sequence

_WORDS = {
    "English": (
        "a about am an and any are as at be been but by can could did do does for from had has have he her "
        "him his how i if in into is it its just me my of on or our s she should so some t than that the "
        "their them then there these they this to us was we were what when where which who whom why will with "
        "would you your"
    ),
    "German": (
        "aber als am an auch auf aus bei bin bis da das dass dem den der des die dir du ein eine einem einen "
        "einer er es euch fur haben hat hatte ich ihr im in ist ja kann mein meine mich mir mit nach nicht "
        "noch nur ob oder sein seine sich sie sind so uber um und uns unser unsere vom von vor wann war waren "
        "warum was welche welchem welchen welcher welches wem wen wenn wer werden wie wir wird wo woher wohin "
        "wurde zu zum zur"
    ),
    "French": (
        "a ai as au aux avec c ce ces cette comment d dans de des du elle en es est et etait eu il ils j je l "
        "la le les leur lui m ma mais me mes mon n ne nos notre nous on ont ou par pas pour pourquoi qu quand "
        "que quel quelle quelles quels qui quoi s sa se ses son sont sur t ta te tes toi ton tu un une vos "
        "votre vous y"
    ),
    "Spanish": (
        "a al como con cual cuales cuando cuanto de del donde e el ella ellos en era es esta este fue ha han "
        "hay la las le les lo los me mi mis muy no nos o para pero por porque que quien se ser sera si sin "
        "sobre son su sus te tu un una y ya yo"
    ),
    "Italian": (
        "a ad ai al alla alle anche c che chi ci come con cosa cui da dal dalla de dei del della delle di do "
        "dove e ed era gli ha hai hanno ho i il in io l la le lei li lo lui ma mi mia mio ne nei nel nella "
        "noi non o per perche piu quale quali quando quanto se si sono su sua sul suo ti tra tu un una uno"
    ),
    "Portuguese": (
        "a ao aos as com como da das de do dos e ela ele em era essa esta este eu foi foram ha isso ja la lhe "
        "mais mas me meu minha muito na nao nas no nos num numa o onde os ou para pela pelo por porque quais "
        "qual quando que quem sao se sem ser seu sua tem um uma voce"
    ),
    "Dutch": (
        "aan als bij dan dat de der die dit door een en er had heb heeft het hij hoe ik in is je kan maar me "
        "met mijn naar niet nog of om onder ons onze ook op over te tot uit van voor waar waarom wat welk "
        "welke werd wie wij word wordt ze zei zich zij zijn"
    ),
    "Swedish": (
        "ar att av dar de den det din du en er ett for fran han har hon hur i inte jag kan med men min mitt "
        "nar och om oss pa sig sin som till under upp ut vad var vara vem vi vilka vilken vilket"
    ),
    "Polish": (
        "a albo ale bo by byl byla co czy dla do gdzie go i ich ile ja jak jaka jaki jakie jest kiedy kto "
        "ktora ktore ktory ma mi mnie moj moja na nie o od po pod przy sa sie ta tak te ten to w we z za ze"
    ),
    "Turkish": ("bir bu da de diye en gibi icin ile kac ki kim mi mu nasil ne neden nerede o olan ve veya ya"),
    "Russian": (
        "а без бы был была были было в вы где да для до его ее если есть же за и из или им их к как какая "
        "какие какои кем когда кого кому кто куда ли мне мои моя мы на не него нее но о об он она они от "
        "откуда по под почему при с со так там то ты у уже чего чем что это я"
    ),
    "Greek": (
        "αν απο για δεν ειναι εχει η και μας με μου να ο οι οτι που πως σας σε στη στην στο στον τα τη την "
        "της τι το τον του των"
    ),
}
_OF = {language: frozenset(words.split()) for language, words in _WORDS.items()}
_ENGLISH = _OF["English"]
_LANGUAGES: dict[str, tuple[str, ...]] = {  # of each stop word
    word: tuple(language for language, stop in _OF.items() if word in stop) for word in frozenset().union(*_OF.values())
}


def telling(words: Sequence[str]) -> Sequence[str]:
    """The words of a query that say what it is about; all of them if none does."""
    counts = {"English": 0}  # the first, so it wins when equal
    for word in dict.fromkeys(words):
        for language in _LANGUAGES.get(word, ()):
            counts[language] = counts.get(language, 0) + 1
    most = max(counts, key=lambda language: counts[language])
    stop = _OF[most] if counts[most] > 1 else _ENGLISH
    return [word for word in words if word not in stop] or words
