/* One synchronization of the database of salvor.json5, and what came of it. */
#include <salvor.h>
#include <stdio.h>

static void told(void *context, const char *event) {
  (void)context;
  printf("event %s\n", event);
}

int main(int count, char **arguments) {
  char options[4096];
  snprintf(options, sizeof options, "{\"configurationFile\": \"%s\"}", count > 1 ? arguments[1] : "salvor.json5");

  salvor_client client;
  char *result;
  int32_t code = salvor_open(options, &client, &result);
  if (code == 0) {
    salvor_string_free(result);
    salvor_subscribe(client, told, NULL, NULL, NULL);
    code = salvor_synchronize(client, NULL, &result);
  }
  printf("%s %s\n", code == 0 ? "report" : "error", result);
  salvor_string_free(result);
  salvor_close(client, NULL);
  return code == 0 ? 0 : 1;
}
