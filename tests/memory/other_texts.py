"""Texts of other kinds than conversations, with questions: documentation, descriptions of tools, notes in several
languages. All were written for this test. The questions were written before any of them was searched for."""

# A text, and questions that it answers.
DOCUMENTATION = {
    "rmtree(path) deletes a directory and everything below it. Read-only files on Windows need an onexc handler.": (
        "How do I remove a whole folder with its contents?",
        "rmtree read-only files",
    ),
    "copy2(src, dst) copies a file together with its modification time and permission bits.": (
        "duplicate a file but keep its timestamps",
    ),
    "A TemporaryDirectory is removed when its context manager exits, even if an exception was raised.": (
        "scratch folder that cleans up after itself",
    ),
    "The pool keeps at most max_size connections. A caller that finds none free waits for acquire_timeout seconds.": (
        "What happens when all database connections are in use?",
        "acquire_timeout",
    ),
    "Set retries to 0 to turn off repeated attempts. Every further attempt waits twice as long as the one before.": (
        "exponential backoff",
        "How can I disable trying again?",
    ),
    "json.loads raises JSONDecodeError for malformed input; its lineno and colno say where.": (
        "find the position of a syntax error in a JSON document",
    ),
    "The --dry-run flag prints the changes that would be made and writes nothing.": (
        "preview what a command does without changing anything",
    ),
    "Logs rotate when they reach 10 MB. The five newest files are kept, compressed with gzip.": (
        "How many old log files are retained?",
    ),
    "An index on (tenant_id, created_at) serves queries that list the newest rows of one tenant.": (
        "speed up listing recent records per customer",
    ),
    "VACUUM rewrites the database file and gives unused pages back to the file system.": (
        "shrink the database on disk",
    ),
    "Signals SIGTERM and SIGINT start a graceful shutdown: open requests finish, new ones get 503.": (
        "stop the service without dropping requests in progress",
        "SIGTERM",
    ),
    "The cache evicts the least recently used entry when it is full. Its size is set by CACHE_ENTRIES.": (
        "Which item is thrown out first?",
        "CACHE_ENTRIES",
    ),
    "TLS certificates are read again every hour, so a renewed certificate needs no restart.": (
        "Do I have to restart after renewing the certificate?",
    ),
    "Rate limits are counted per API key and minute. A response with status 429 has a Retry-After header.": (
        "too many requests, how long to wait?",
    ),
    "The cursor of a page is opaque. Pass it back as `after` to get the next page; null means there is none.": (
        "How do I fetch the following results of a list?",
    ),
    "Webhook bodies are signed with HMAC-SHA256. Compare the digest in constant time.": (
        "verify that a callback really comes from the service",
    ),
    "Migrations run in a transaction each. A failed one is rolled back and the server does not start.": (
        "What if a schema upgrade fails halfway?",
    ),
    "strftime('%Y-%m-%d') formats a date as year, month and day with leading zeros.": ("print a date as ISO text",),
    "asyncio.timeout(5) cancels the body of the block after five seconds and raises TimeoutError.": (
        "limit how long a coroutine may take",
    ),
    "zip(a, b, strict=True) raises ValueError when the iterables have different lengths.": (
        "iterate over two lists and fail if one is longer",
    ),
    "Exit status 2 means that the command line was wrong; 1 means that the command itself failed.": (
        "meaning of return code 2",
    ),
    "PRAGMA journal_mode=WAL lets readers continue while one writer commits.": (
        "concurrent reads during a write",
        "journal_mode",
    ),
    "Paths in the manifest are relative to the manifest and use forward slashes on every system.": (
        "Are file names in the manifest absolute?",
    ),
    "The worker restarts after 1,000 jobs to give leaked memory back.": (
        "Why do worker processes get replaced from time to time?",
    ),
}

TOOLS = {
    "send_email: Sends a message to one or more recipients. Parameters: to, subject, body, attachments.": (
        "write to a colleague by mail",
    ),
    "get_weather: Current temperature, wind and rain for a city. Parameters: city, units.": (
        "Will I need an umbrella in Oslo?",
    ),
    "create_event: Adds an appointment to the calendar. Parameters: title, start, end, guests.": (
        "schedule a meeting",
    ),
    "convert_currency: Converts an amount of money at today's exchange rate. Parameters: amount, source, target.": (
        "how many euros are 20 dollars",
    ),
    "run_sql: Runs a read-only query against the sales database. Parameters: query, limit.": (
        "look up last month's revenue",
    ),
    "translate_text: Translates a text between two languages. Parameters: text, source_language, target_language.": (
        "say this in French",
    ),
    "resize_image: Scales a picture to a width and height. Parameters: file, width, height.": ("make a photo smaller",),
    "transcribe_audio: Turns a recording of speech into text. Parameters: file, language.": (
        "get the words of a voice memo",
    ),
    "search_flights: Finds flights between two airports on a day. Parameters: origin, destination, date.": (
        "book a trip by plane",
    ),
    "set_timer: Rings after some minutes. Parameters: minutes, label.": ("remind me when the eggs are done",),
    "read_pdf: Returns the text of the pages of a PDF file. Parameters: file, pages.": (
        "extract a document's content",
    ),
    "play_music: Plays a song, album or artist on the speaker. Parameters: query, volume.": ("put on some jazz",),
    "lock_door: Locks or unlocks the front door. Parameters: locked.": ("is the house secured?",),
    "summarize_thread: Shortens a long discussion to its decisions. Parameters: thread_id, sentences.": (
        "what was agreed in that conversation",
    ),
    "git_blame: Shows who last changed each line of a file. Parameters: path, revision.": (
        "find the author of a line of code",
    ),
}

LANGUAGES = {
    "Der Schlüssel zum Keller hängt neben der Haustür.": ("Wo hängt der Kellerschlüssel?", "Schlüssel Keller"),
    "Oma bringt am Sonntag einen Apfelkuchen mit.": ("Wer bringt den Kuchen?",),
    "Die Heizung wurde im November repariert, die Rechnung liegt im blauen Ordner.": (
        "In welchem Ordner liegen die Rechnungen?",
    ),
    "Das Passwort des Routers steht auf einem Zettel unter dem Gerät.": ("Wo steht das Router-Passwort?",),
    "Unsere Katzen fressen kein Trockenfutter.": ("Was frisst die Katze nicht?",),
    "Le médecin a dit de boire plus d'eau et de dormir davantage.": ("Qu'a dit le médecin ?",),
    "Les clés de la voiture sont dans le tiroir de la cuisine.": ("Où sont les clés de la voiture ?", "tiroir cuisine"),
    "Nous avons réservé deux chambres à Lyon pour les vacances d'été.": ("Dans quelle ville est la réservation ?",),
    "Ma sœur est allergique aux noix et aux arachides.": ("À quoi ma sœur est-elle allergique ?",),
    "El gato de la vecina se llama Bigotes.": ("¿Cómo se llama el gato?",),
    "La reunión de padres será el martes a las seis en la escuela.": ("¿Cuándo es la reunión de los padres?",),
    "Compramos las entradas del concierto por internet.": ("¿Dónde se compraron las entradas para los conciertos?",),
    "Mi abuelo nació en un pueblo pequeño cerca de Burgos.": ("¿En qué pueblo nacieron los abuelos?",),
    "Il treno per Bologna parte dal binario tre.": ("Da quale binario parte il treno?",),
    "La nonna tiene la farina nell'armadio grande.": ("Dove tiene la farina la nonna?",),
    "Abbiamo venduto la macchina vecchia a un amico di Marco.": ("A chi abbiamo venduto le macchine?",),
    "A minha irmã trabalha num hospital no Porto.": ("Onde trabalha a minha irmã?",),
    "O encontro foi adiado para quinta-feira.": ("Para quando foram adiados os encontros?",),
    "De fietsen staan achter het huis onder een zeil.": ("Waar staat de fiets?",),
    "Het recept voor de soep hangt aan de koelkast.": ("Waar hangt het recept van de soep?",),
    "Бабушка живёт в деревне под Тверью.": ("Где живёт бабушка?",),
    "Документы лежат в верхнем ящике стола.": ("Где лежит документ?",),
    "Билеты на поезд купили вчера.": ("Когда купили билет на поезд?",),
    "Nyckeln till stugan ligger under krukan.": ("Var ligger nycklarna till stugan?",),
    "Klucze do garażu wiszą przy drzwiach.": ("Gdzie wiszą klucze do garażu?",),
    "車の鍵は玄関の引き出しにあります。": ("車の鍵はどこですか",),
    "会议改到星期五下午三点。": ("会议什么时候开?",),
    "妹妹对花生过敏。": ("谁对花生过敏?",),
    "Το κλειδί είναι κάτω από τη γλάστρα.": ("Πού είναι το κλειδί;",),
    "Anahtar saksının altında duruyor.": ("Anahtarlar nerede duruyor?",),
}
