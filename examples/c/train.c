/* Fits a parabola by gradient descent with momentum. Everything that the next epoch needs is in one struct, which is
 * saved to and loaded from the folders that freezethaw names. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct state {
  double weights[3], speed[3];
};

static volatile sig_atomic_t asked_to_leave = 0;

static void leave(int signal_number) {
  (void)signal_number;
  asked_to_leave = 1;
}

static double number(const char *text, const char *name) {
  char key[64];
  snprintf(key, sizeof key, "\"%s\":", name);
  const char *place = strstr(text, key);
  if (!place) {
    fprintf(stderr, "the configuration has no %s\n", name);
    exit(1);
  }
  return strtod(place + strlen(key), NULL);
}

static double epoch(struct state *s, double rate, double momentum) {
  double loss = 0;
  for (int i = 0; i < 50; i++) {
    double x = i / 25.0 - 1, error = -(1 + x - 2 * x * x), powers[3] = {1, x, x * x};
    for (int j = 0; j < 3; j++) error += s->weights[j] * powers[j];
    for (int j = 0; j < 3; j++) {
      s->speed[j] = momentum * s->speed[j] - rate * error * powers[j];
      s->weights[j] += s->speed[j];
    }
    loss += error * error / 50;
  }
  return loss;
}

int main(void) {
  char text[4096] = "", path[4096];
  struct state s = {{0}, {0}};
  signal(SIGTERM, leave);
  FILE *file = fopen(getenv("FREEZETHAW_CONFIG"), "r");
  if (!file || !fread(text, 1, sizeof text - 1, file)) return 1;
  fclose(file);
  double rate = number(text, "rate"), momentum = number(text, "momentum");
  if (*getenv("FREEZETHAW_LOAD")) {
    snprintf(path, sizeof path, "%s/state", getenv("FREEZETHAW_LOAD"));
    if (!(file = fopen(path, "rb")) || fread(&s, sizeof s, 1, file) != 1) return 1;
    fclose(file);
  }
  int to = atoi(getenv("FREEZETHAW_TO"));
  for (int e = atoi(getenv("FREEZETHAW_FROM")) + 1; e <= to && !asked_to_leave; e++) {
    double loss = epoch(&s, rate, momentum);
    if (!isfinite(loss)) return 10;
    printf("{\"epoch\": %d, \"loss\": %.17g}\n", e, loss);
    fflush(stdout);
  }
  snprintf(path, sizeof path, "%s/state", getenv("FREEZETHAW_SAVE"));
  if (!(file = fopen(path, "wb")) || fwrite(&s, sizeof s, 1, file) != 1 || fclose(file)) return 1;
  return asked_to_leave ? 12 : 0;
}
