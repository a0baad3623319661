"""The smallest search: twenty lines."""

import freezethaw as ft

space = ft.Space(learning_rate=ft.Float(1e-4, 0.5, log=True), momentum=ft.Float(0.0, 0.9))


def train(run):  # called for each start and each thaw
    state = [5.0, 0.0]  # a weight and its speed
    if run.checkpoint:  # a folder that an earlier call saved, or None
        state = [float(x) for x in (run.checkpoint / "state.txt").read_text().split()]
    for _ in run.epochs():  # ends when the run is frozen
        state[1] = run.config["momentum"] * state[1] - run.config["learning_rate"] * 2 * state[0]
        state[0] += state[1]
        run.report(state[0] ** 2, save=lambda folder: (folder / "state.txt").write_text("{} {}".format(*state)))


if __name__ == "__main__":
    result = ft.tune(train, space, max_epochs=10, budget=20)
    print(f"best: run {result.best.run}, loss {result.best.loss:.4g}, {dict(result.best.config)}")
