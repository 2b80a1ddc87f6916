/*
 * libsalvor: a SQLite database that stays in step with a server. C99; for C++ and for every language that can call C.
 *
 *   salvor_client client;
 *   char *result;
 *   if (salvor_open("{\"configurationFile\": \"salvor.json5\"}", &client, &result) != 0) fail(result);
 *   salvor_string_free(result);
 *   if (salvor_synchronize(client, NULL, &result) != 0) fail(result);
 *   ...
 *
 * The application reads and writes the database with its own SQLite library, and keeps to one rule: the process must
 * have ONE copy of SQLite, the shared one that libsalvor is linked with. Two copies in one process take each other's
 * locks away, which can damage the file (sqlite.org/howtocorrupt.html, 2.2.1). salvor_version names that of libsalvor.
 *
 * RESULTS. A function returns 0, or the number of an error: negative, the same as in the catalogue
 * (docs/reference/errors.md). *result is a text of JSON then as before: the result, or
 *
 *   {"code": -20012, "name": "unreachable", "message": "what happened, and what to do now", "wayOn": "...",
 *    "retryable": true, "reason": null, "retryAfterMilliseconds": null}
 *
 * An error of a synchronization or recovery has its figures as "report" besides. Later releases add members; pass over
 * those that you do not know.
 *
 * OWNERSHIP. Each *result is the caller's, to be given back with salvor_string_free; NULL instead of a place for it means
 * that it is not wanted. What a caller gives (options, context) stays the caller's, and is not needed any more when the
 * call returns; a context until its subscription has ended. A callback's event is there until the callback returns.
 *
 * TEXTS are UTF-8 and end with NUL. OPTIONS are one JSON object, or NULL for none; a member that is not known is
 * refused (usage).
 *
 * THREADS. Every function may be called from every thread at any time, from callbacks as well. A call holds its thread
 * until it is done. Calls about one database wait for each other where they must; salvor_cancel ends them early.
 *
 * CALLBACKS run one at a time and in order, on a thread of the library. They may call every function, and may take long:
 * what waits for them is bounded (1,000 events), and the event "lost" says how many of the oldest went.
 *
 * AFTER THE END. A client's number is never given twice. To close it again does nothing; whatever else is called with it is
 * refused (usage). To free a text again, or one that is not the library's, does nothing, as long as the address is not
 * one of 256 texts and more later: do not rely on it.
 *
 * FORK. The library's threads are not in a forked process: there, each function that was used by its parent before returns
 * an error and no text (*result is NULL), and does nothing. A process that is started with exec is one of its own.
 */
#ifndef SALVOR_H
#define SALVOR_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The ABI that this header is of. It grows where a program made for the former one would fail; functions that are added do
 * not change it. A library fits where salvor_abi_version() == SALVOR_ABI_VERSION. */
#define SALVOR_ABI_VERSION 1

int32_t salvor_abi_version(void);

/* {"salvor": "0.1.0", "abi": 1, "libraries": {"SQLite": "3.40.1", ...}} */
int32_t salvor_version(char **result);

void salvor_string_free(char *text);

/* An open client; 0 is none. */
typedef uint64_t salvor_client;

/* ---- Opening and closing ------------------------------------------------------------------------------------------- */

/* Opens, or makes, the device's database. Options:
 *
 *   "configurationFile"  a path of a salvor.json5, or
 *   "configuration"      what would stand in it: an object, or a text of JSON5; "schema" in it may be the schema itself
 *   "directory"          what relative paths of "configuration" are relative to; "." by default
 *   "token"              the credential, in the place of client.credentials: salvor_set_token gives a new one
 *
 * "plugins" in the configuration is refused (configuration): libsalvor hides the code that such a library stands on.
 *
 * Result: {"createdTables": [...], "addedColumns": [...], "adoptedRows": 0, "notices": [...]}
 * A damaged file is opened as well, with a notice: salvor_recover makes it anew. */
int32_t salvor_open(const char *options, salvor_client *client, char **result);

/* Ends what runs at its next safe place, then the client. What has happened until then is told before this returns, and
 * nothing afterwards. Called by a callback, it tells nothing more. */
int32_t salvor_close(salvor_client client, char **result);

/* The credential from the next synchronization on, and after the next refusal of the one that runs. */
int32_t salvor_set_token(salvor_client client, const char *token, char **result);

/* Another user takes over the device. Options:
 *
 *   "database"   the path of a file of his own, as this process sees it; made where there is none
 *   "token"      his credential; salvor_set_token gives a new one
 *   "principal"  his name at the server; without a token it is sent as the credential (authentication "none")
 *
 * What the user of before has not sent stays in his file and is never sent as another: it goes when he is back. A
 * synchronization that runs ends at its next safe place, a watch ends (event watch-ended); subscriptions stay.
 * The database of another user is refused (remote-of-another-principal), and the user of before stays.
 * Result: {"principal": "bert"} */
int32_t salvor_switch(salvor_client client, const char *options, char **result);

/* ---- Synchronizing ------------------------------------------------------------------------------------------------- */

/* Registers the database with the server; the first synchronization does it otherwise. Result: {"remoteID": "..."} */
int32_t salvor_register(salvor_client client, char **result);

/* Sends what waits, fetches what has changed, applies it. Options: "groups": ["visits"], all by default;
 * "withinMilliseconds": 25000, after which it stops at the next safe place with {"outcome": "unfinished"}.
 * Result: the report, as `salvor sync --json` prints it. "refused" in it above 0: look at salvor_errors. */
int32_t salvor_synchronize(salvor_client client, const char *options, char **result);

/* Ends the calls of this client that run, at their next safe place: they return the error cancelled. */
int32_t salvor_cancel(salvor_client client, char **result);

/* An event is a JSON object with the member "event":
 *
 *   state          "state", as salvor_state gives it; progress is in it
 *   rows-changed   "changes": [{"table": "site", "keys": [["s1"], ...]}]; keys null: read the whole table anew
 *   synchronized, failed   "report"
 *   noted          "notes": ["what a person has to know", ...]
 *   listening      "groups";    not-listening   "error"
 *   changed        "groups", "commit": the server says so;    captured   "groups": an application has written
 *   watch-ended    "report": the one that needs a person, or null
 *   lost           "count": so many events were not told
 */
typedef void (*salvor_callback)(void *context, const char *event);

/* Tells `callback` of every event from here on. */
int32_t salvor_subscribe(salvor_client client, salvor_callback callback, void *context, uint64_t *subscription,
                         char **result);

/* The callback is not called any more when this returns, unless it called this itself. */
int32_t salvor_unsubscribe(salvor_client client, uint64_t subscription, char **result);

/* Synchronizes now, and from here on whenever either side changes, until salvor_unwatch or until a person is needed
 * (event watch-ended). Returns at once. One watch for each client. Options: "groups". */
int32_t salvor_watch(salvor_client client, const char *options, char **result);
int32_t salvor_unwatch(salvor_client client, char **result);

/* ---- Where things stand -------------------------------------------------------------------------------------------- */

/* {"name": "idle" | "connected"}, {"name": "synchronizing", "progress": null | {"step": "receiving", "rows": 17,
 * "permille": 250}}, {"name": "offline", "since": milliseconds since 1970}, {"name": "waiting-for-user", "error": {...}},
 * {"name": "recovery-required", "reason": "server-restored"} */
int32_t salvor_state(salvor_client client, char **result);

/* What the database says of itself, as `salvor status --json --offline` prints it. */
int32_t salvor_status(salvor_client client, char **result);

/* ---- The queue and the error archive ------------------------------------------------------------------------------- */

/* {"requests": [...], "next": null | "ID"}, as `salvor queue --json` prints it. Options: "after": "ID", "limit": 1000 */
int32_t salvor_queue(salvor_client client, const char *options, char **result);
/* The same of what was refused, blocked, displaced, or kept by a recovery. */
int32_t salvor_errors(salvor_client client, const char *options, char **result);
/* Each change of one request. Options: "id" */
int32_t salvor_request(salvor_client client, const char *options, char **result);

/* Takes a request back that was not sent yet, and what depends on it. Options: "id", "plan": true writes nothing. */
int32_t salvor_withdraw(salvor_client client, const char *options, char **result);
/* Takes failed requests back. Options: one of "id", "all": true, "kept": true; "plan": true writes nothing. */
int32_t salvor_errors_delete(salvor_client client, const char *options, char **result);
/* Makes failed requests wait again. Options: one of "id", "all": true.
 * Result: {"requests": [{"id": "...", "outcome": "queued", "now": "ID"}]} */
int32_t salvor_errors_retry(salvor_client client, const char *options, char **result);
/* Does again what an entry did that a recovery kept. Options: "id". Result: {"now": null | "ID"} */
int32_t salvor_errors_reapply(salvor_client client, const char *options, char **result);

/* ---- Recovery ------------------------------------------------------------------------------------------------------ */

/* What a recovery would do; writes nothing. Options: "strategy". Result: as `salvor recover --plan --json` prints it. */
int32_t salvor_recovery_plan(salvor_client client, const char *options, char **result);
/* Recovers, then synchronizes. Options: "strategy"; "token", of the recovery that is required (salvor_status). */
int32_t salvor_recover(salvor_client client, const char *options, char **result);
/* {"recoveries": [...]}, newest first; with "id" that one, with its "items". Options: "limit": 100, "id" */
int32_t salvor_recoveries(salvor_client client, const char *options, char **result);

/* ---- Migrations of the application's own --------------------------------------------------------------------------- */

/* Between the two, what the application does to its tables is no edit of a user: what differs in the end is captured. */
int32_t salvor_capture_pause(salvor_client client, char **result);
int32_t salvor_capture_resume(salvor_client client, char **result);

#ifdef __cplusplus
}
#endif

#endif
