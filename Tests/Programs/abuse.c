/* A caller of libsalvor that does everything wrong: abuse CONFIGURATION. It prints "all right" where each is borne. */
#define _POSIX_C_SOURCE 200809L
#include <salvor.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what)                                                                       \
  do {                                                                                    \
    if (!(what)) {                                                                        \
      fprintf(stderr, "line %d: %s\n", __LINE__, #what);                                  \
      exit(1);                                                                            \
    }                                                                                     \
  } while (0)

static const int32_t usage = -20000;
static char options[4096];

static salvor_client opened(void) {
  salvor_client client = 0;
  char *result = NULL;
  if (salvor_open(options, &client, &result) != 0) {
    fprintf(stderr, "%s\n", result);
    exit(1);
  }
  CHECK(client != 0 && strstr(result, "createdTables"));
  salvor_string_free(result);
  return client;
}

/* The error must be of this code, and its text must hold `words`. */
static void refused(int32_t code, int32_t wanted, char *result, const char *words) {
  if (code != wanted || result == NULL || strstr(result, words) == NULL || strstr(result, "\"wayOn\"") == NULL) {
    fprintf(stderr, "%d in the place of %d, without \"%s\": %s\n", code, wanted, words, result ? result : "no text");
    exit(1);
  }
  salvor_string_free(result);
}

static void wrong_arguments(void) {
  salvor_client client = 7;
  char *result;
  refused(salvor_open(NULL, &client, &result), usage, result, "configurationFile");
  CHECK(client == 0);
  refused(salvor_open("{", &client, &result), usage, result, "not JSON");
  refused(salvor_open("[]", &client, &result), usage, result, "not one JSON object");
  refused(salvor_open("{\"file\": 1}", &client, &result), usage, result, "no option \\\"file\\\"");
  refused(salvor_open("{\"configurationFile\": \"\xff\"}", &client, &result), usage, result, "UTF-8");
  refused(salvor_open("{}", NULL, &result), usage, result, "no place");
  CHECK(salvor_open("{\"configurationFile\": \"not there\"}", &client, &result) != 0 && client == 0);
  CHECK(strstr(result, "\"configuration\""));
  salvor_string_free(result);
  CHECK(salvor_open("{}", NULL, NULL) == usage);
  refused(salvor_synchronize(0, NULL, &result), usage, result, "no such client");
  refused(salvor_synchronize(1234567, NULL, &result), usage, result, "no such client");
  refused(salvor_close(1234567, &result), usage, result, "no such client");

  client = opened();
  refused(salvor_errors_retry(client, NULL, &result), usage, result, "one of the two");
  refused(salvor_request(client, "{\"id\": \"x\"}", &result), usage, result, "a request's ID");
  refused(salvor_queue(client, "{\"limit\": -1}", &result), usage, result, "above 0");
  refused(salvor_set_token(client, "t", &result), usage, result, "of the configuration");
  refused(salvor_subscribe(client, NULL, NULL, NULL, &result), usage, result, "no callback");
  refused(salvor_switch(client, NULL, &result), usage, result, "database");
  refused(salvor_switch(client, "{\"database\": \"x.db\"}", &result), usage, result, "token");
  CHECK(salvor_switch(client, "{\"database\": \"no/such/folder/x.db\", \"principal\": \"b\"}", &result) != 0);
  CHECK(strstr(result, "\"wayOn\""));
  salvor_string_free(result);
  CHECK(salvor_switch(client, "{\"database\": \"other \xc3\xa9.db\", \"principal\": \"bert\"}", &result) == 0);
  CHECK(strstr(result, "\"bert\""));
  salvor_string_free(result);
  refused(salvor_unsubscribe(client, 99, &result), usage, result, "no such subscription");
  CHECK(salvor_close(client, NULL) == 0);
}

static void after_the_end(void) {
  salvor_client client = opened();
  char *result;
  CHECK(salvor_state(client, &result) == 0 && strstr(result, "\"idle\""));
  salvor_string_free(result);
  salvor_string_free(result);
  salvor_string_free(NULL);
  char mine[] = "not the library's";
  salvor_string_free(mine);
  CHECK(salvor_close(client, NULL) == 0);
  CHECK(salvor_close(client, NULL) == 0);
  refused(salvor_synchronize(client, NULL, &result), usage, result, "was closed");
  refused(salvor_status(client, &result), usage, result, "was closed");
  refused(salvor_state(client, &result), usage, result, "was closed");
  refused(salvor_watch(client, NULL, &result), usage, result, "was closed");
  CHECK(salvor_unsubscribe(client, 1, NULL) == 0);
}

static void *many(void *context) {
  salvor_client client = *(salvor_client *)context;
  for (int round = 0; round < 5; round++) {
    char *result;
    int32_t code = salvor_synchronize(client, NULL, &result);
    if (code != 0) fprintf(stderr, "%s\n", result);
    CHECK(code == 0);
    salvor_string_free(result);
    CHECK(salvor_status(client, &result) == 0);
    salvor_string_free(result);
    CHECK(salvor_queue(client, "{\"limit\": 3}", &result) == 0);
    salvor_string_free(result);
  }
  return NULL;
}

static void ten_threads(void) {
  salvor_client client = opened();
  pthread_t threads[10];
  for (int i = 0; i < 10; i++) CHECK(pthread_create(&threads[i], NULL, many, &client) == 0);
  for (int i = 0; i < 10; i++) pthread_join(threads[i], NULL);
  CHECK(salvor_close(client, NULL) == 0);
}

/* Each waits for the other's turn, or says that it did not get one. */
static void *take_turns(void *context) {
  salvor_client client = *(salvor_client *)context;
  for (int round = 0; round < 5; round++) {
    char *result;
    int32_t code = salvor_synchronize(client, NULL, &result);
    if (code != 0 && strstr(result, "\"session-in-use\"") == NULL && strstr(result, "\"storage-busy\"") == NULL) {
      fprintf(stderr, "%s\n", result);
      exit(1);
    }
    salvor_string_free(result);
  }
  return NULL;
}

static void two_clients(void) {
  salvor_client clients[2] = {opened(), opened()};
  CHECK(clients[0] != clients[1]);
  pthread_t threads[2];
  for (int i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, take_turns, &clients[i]) == 0);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  CHECK(salvor_close(clients[0], NULL) == 0);
  CHECK(salvor_synchronize(clients[1], NULL, NULL) == 0);
  CHECK(salvor_close(clients[1], NULL) == 0);
}

static void *synchronize(void *context) {
  salvor_client client = *(salvor_client *)context;
  char *result = NULL;
  int32_t code = salvor_synchronize(client, NULL, &result);
  CHECK(result != NULL);
  /* Done, cancelled by the end, or too late for it. */
  CHECK(code == 0 || strstr(result, "\"cancelled\"") || strstr(result, "closed"));
  salvor_string_free(result);
  return NULL;
}

static void close_meanwhile(void) {
  for (int round = 0; round < 20; round++) {
    salvor_client client = opened();
    pthread_t threads[3];
    CHECK(salvor_watch(client, NULL, NULL) == 0);
    for (int i = 0; i < 3; i++) CHECK(pthread_create(&threads[i], NULL, synchronize, &client) == 0);
    struct timespec pause = {0, round * 2000000L};
    nanosleep(&pause, NULL);
    if (round % 2) salvor_cancel(client, NULL);
    CHECK(salvor_close(client, NULL) == 0);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  }
}

struct calls {
  salvor_client client;
  uint64_t subscription;
  volatile int synchronized, back, ended;
};

static void calls_back(void *context, const char *event) {
  struct calls *calls = context;
  char *result;
  CHECK(!calls->ended);
  if (strstr(event, "\"event\":\"synchronized\"") == NULL) return;
  if (++calls->synchronized == 1) {
    CHECK(salvor_synchronize(calls->client, NULL, &result) == 0);
    salvor_string_free(result);
    CHECK(salvor_errors(calls->client, NULL, &result) == 0);
    salvor_string_free(result);
  } else {
    CHECK(salvor_unsubscribe(calls->client, calls->subscription, NULL) == 0);
    CHECK(salvor_unwatch(calls->client, NULL) == 0);
    CHECK(salvor_close(calls->client, NULL) == 0);
    calls->ended = 1;
    calls->back = 1;
  }
}

static void callbacks_that_call(void) {
  struct calls calls = {0};
  calls.client = opened();
  CHECK(salvor_subscribe(calls.client, calls_back, &calls, &calls.subscription, NULL) == 0);
  CHECK(salvor_watch(calls.client, NULL, NULL) == 0);
  char *result = NULL;
  int32_t code = salvor_watch(calls.client, NULL, &result);
  CHECK(code == 0 || code == usage);
  salvor_string_free(result);
  for (int i = 0; i < 6000 && !calls.back; i++) {
    struct timespec pause = {0, 10000000L};
    nanosleep(&pause, NULL);
  }
  CHECK(calls.back);
  refused(salvor_state(calls.client, &result), usage, result, "was closed");
}

static void forked(void) {
  salvor_client client = opened();
  pid_t child = fork();
  if (child == 0) {
    char *result = options;
    salvor_client other = 5;
    if (salvor_synchronize(client, NULL, &result) != usage || result != NULL) _exit(2);
    if (salvor_open(options, &other, NULL) != usage || other != 0) _exit(3);
    if (salvor_state(client, NULL) != usage) _exit(4);
    if (salvor_close(client, NULL) != usage) _exit(5);
    salvor_string_free(options);
    _exit(salvor_abi_version() == SALVOR_ABI_VERSION ? 0 : 6);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(salvor_synchronize(client, NULL, NULL) == 0);
  CHECK(salvor_close(client, NULL) == 0);
}

int main(int count, char **arguments) {
  CHECK(count == 2);
  snprintf(options, sizeof options, "{\"configurationFile\": \"%s\"}", arguments[1]);
  CHECK(salvor_abi_version() == SALVOR_ABI_VERSION);
  char *result;
  CHECK(salvor_version(&result) == 0 && strstr(result, "\"abi\":1"));
  salvor_string_free(result);
  wrong_arguments();
  puts("wrong arguments");
  after_the_end();
  puts("after the end");
  ten_threads();
  puts("ten threads");
  two_clients();
  puts("two clients");
  close_meanwhile();
  puts("close meanwhile");
  callbacks_that_call();
  puts("callbacks that call");
  forked();
  puts("all right");
  return 0;
}
