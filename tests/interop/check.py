"""Checks Hooke's files with other programs' own code, and theirs with ours.

    check.py PROGRAM FOLDER

PROGRAM is the built interop.c; what it says about its values holds here, too.
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import time
import traceback

import numpy as np
import safetensors
import safetensors.numpy
import tensorflow as tf
from tensorboard.backend.event_processing import data_provider
from tensorboard.backend.event_processing import event_accumulator
from tensorboard.backend.event_processing import plugin_event_multiplexer
from tensorboard.plugins import base_plugin
from tensorboard.plugins.hparams import api_pb2
from tensorboard.plugins.hparams import backend_context
from tensorboard.plugins.hparams import get_experiment
from tensorboard.plugins.hparams import list_session_groups
from tensorboard.plugins.hparams import api as hp
from tensorboard.context import RequestContext
from tensorboard.data import server_ingester
from tensorboard.util import grpc_util

v1 = tf.compat.v1
v1.logging.set_verbosity(v1.logging.ERROR)
PROGRAM, WORK = sys.argv[1], pathlib.Path(sys.argv[2])
CHECKS = []

# What `interop write` writes.
TENSORS = {
    "layer/w": (tf.float32, [7, 5]),
    "layer/b": (tf.float32, [3]),
    "scalar": (tf.float32, []),
    "global_step": (tf.int64, []),
    "double": (tf.float64, [2, 3]),
    "bf16": (tf.bfloat16, [4, 2]),
    "i32": (tf.int32, [6]),
    "i64": (tf.int64, [1, 2, 3]),
    "u8": (tf.uint8, [5]),
    "flag": (tf.bool, [4]),
    "none": (tf.float32, [0, 4]),
    "table": (tf.float32, [300, 70]),
    "half_table": (tf.bfloat16, [90, 3]),
}


def check(function):
    CHECKS.append(function)
    return function


def program(*arguments):
    done = subprocess.run([PROGRAM, *map(str, arguments)], text=True,
                          capture_output=True, check=False)
    assert done.returncode == 0, f"{arguments}: {done.stderr}"
    return done.stdout


def hooke(*arguments):
    """The hooke program that was built beside PROGRAM."""
    path = pathlib.Path(PROGRAM).parent.parent / "hooke"
    done = subprocess.run([path, *map(str, arguments)], text=True,
                          capture_output=True, check=False)
    assert done.returncode == 0, f"{arguments}: {done.stderr}"
    return done.stdout


def folder(name):
    path = WORK / name
    path.mkdir(parents=True)
    return path


def values(dtype, shape):
    """The formula of interop.c."""
    dtype = tf.as_dtype(dtype)
    i = np.arange(int(np.prod(shape)), dtype=np.int64)
    k = (7 * i + 3) % 101
    if dtype == tf.bool:
        k = i % 3 == 0
    elif dtype == tf.string:
        k = np.array([str(x).encode() for x in k], dtype=object)
    elif dtype.is_floating:
        k = (k - 50) / 4
    return k.astype(dtype.as_numpy_dtype).reshape(shape)


def equal(got, dtype, shape):
    expected = values(dtype, shape)
    assert list(got.shape) == list(shape), (got.shape, shape)
    assert got.dtype == expected.dtype, (got.dtype, expected.dtype)
    np.testing.assert_array_equal(got, expected)


def listed(path):
    """What `interop list` says, its values checked: name -> (type, shape)."""
    lines = [line.split(" ") for line in program("list", path).splitlines()]
    return {line[0]: (line[1], [int(x) for x in line[2:]]) for line in lines}


# ---- TensorFlow reads ours ----------------------------------------------------


def written(name, shards, partitions):
    prefix = folder(name) / "model.ckpt-3"
    program("write", "tf", prefix, shards, partitions)
    return str(prefix)


@check
def load_checkpoint_reads_ours():
    for shards, partitions in [(1, 1), (3, 1), (1, 4), (2, 7)]:
        prefix = written(f"load-{shards}-{partitions}", shards, partitions)
        reader = tf.train.load_checkpoint(prefix)
        shapes = reader.get_variable_to_shape_map()
        dtypes = reader.get_variable_to_dtype_map()
        assert set(shapes) == set(TENSORS), shapes
        for name, (dtype, shape) in TENSORS.items():
            assert dtypes[name] == dtype, name
            equal(reader.get_tensor(name), dtype, shape)


def restore(prefix, parts):
    """Through a v1 Saver; variables of two dimensions are partitioned."""
    with tf.Graph().as_default(), v1.Session() as session:
        variables = {}
        for name, (dtype, shape) in TENSORS.items():
            split = len(shape) == 2 and shape[0] >= parts > 1
            variables[name] = v1.get_variable(
                name, shape, dtype, initializer=v1.zeros_initializer(),
                partitioner=v1.fixed_size_partitioner(parts) if split
                else None)
        v1.train.Saver().restore(session, prefix)
        for name, variable in variables.items():
            got = session.run(tf.convert_to_tensor(variable))
            equal(np.asarray(got), *TENSORS[name])


@check
def saver_restores_ours():
    restore(written("saver-whole", 1, 1), 1)
    restore(written("saver-shards", 2, 1), 1)


@check
def saver_restores_ours_into_partitioned_variables():
    restore(written("saver-whole-split", 1, 1), 3)
    restore(written("saver-split-split", 2, 3), 3)
    restore(written("saver-split-other", 2, 5), 3)


@check
def saver_restores_our_partitions_into_whole_variables():
    restore(written("saver-split-whole", 2, 5), 1)


@check
def latest_checkpoint_finds_ours():
    path = folder("latest-ours")
    program("save", path, "tf")
    latest = tf.train.latest_checkpoint(str(path))
    assert latest == str(path / "model.ckpt-3"), latest
    state = tf.train.get_checkpoint_state(str(path))
    assert len(state.all_model_checkpoint_paths) == 3, state
    restore(latest, 1)


# ---- we read TensorFlow's -----------------------------------------------------

THEIRS = {
    **TENSORS,
    "half": (tf.float16, [2, 3]),
    "i8": (tf.int8, [4]),
    "i16": (tf.int16, [3]),
    "u16": (tf.uint16, [3]),
    "words": (tf.string, [5]),
}


def save_theirs(prefix, parts, devices):
    """A v1 Saver; parts > 1 partitions what has two dimensions."""

    def part(dtype, shape):
        whole = values(dtype, shape)

        def initializer(shape, dtype=None, partition_info=None):
            start = partition_info.var_offset if partition_info \
                else [0] * len(shape)
            cut = tuple(slice(a, a + n) for a, n in zip(start, shape))
            return tf.constant(whole[cut], dtype)

        return initializer

    with tf.Graph().as_default():
        for i, (name, (dtype, shape)) in enumerate(THEIRS.items()):
            axis = i % 2 if len(shape) == 2 else 0
            split = parts > 1 and len(shape) == 2 and shape[axis] >= parts
            with tf.device(f"/cpu:{i % devices}"):
                v1.get_variable(
                    name, shape, dtype, initializer=part(dtype, shape),
                    partitioner=v1.fixed_size_partitioner(parts, axis)
                    if split else None)
        config = v1.ConfigProto(device_count={"CPU": devices})
        with v1.Session(config=config) as session:
            session.run(v1.global_variables_initializer())
            v1.train.Saver(sharded=devices > 1).save(session, str(prefix))


def check_listed(path, expected):
    got = listed(path)
    assert set(got) == set(expected), set(got) ^ set(expected)
    for name, (dtype, shape) in expected.items():
        number = tf.as_dtype(dtype).as_datatype_enum
        type_name = tf.dtypes.DType(number).name.upper()
        names = {"FLOAT32": "FLOAT", "FLOAT64": "DOUBLE", "FLOAT16": "HALF"}
        assert got[name][0] == "DT_" + names.get(type_name, type_name), name
        assert got[name][1] == list(shape), name


@check
def we_read_a_saver():
    for parts, devices in [(1, 1), (3, 1), (1, 2), (2, 3)]:
        prefix = folder(f"theirs-{parts}-{devices}") / "model.ckpt-5"
        save_theirs(prefix, parts, devices)
        data = list(prefix.parent.glob("*.data-*"))
        assert len(data) == devices, data
        check_listed(prefix, THEIRS)


@check
def we_read_an_object_checkpoint():
    prefix = folder("object") / "ckpt"
    tf.train.Checkpoint(
        a=tf.Variable(values(tf.float32, [3, 2])),
        b=tf.Variable(values(tf.bfloat16, [5])),
    ).write(str(prefix))
    got = listed(prefix)
    assert got["a/.ATTRIBUTES/VARIABLE_VALUE"] == ("DT_FLOAT", [3, 2]), got
    assert got["b/.ATTRIBUTES/VARIABLE_VALUE"] == ("DT_BFLOAT16", [5]), got


@check
def we_find_their_latest():
    path = folder("latest-theirs")
    save_theirs(path / "model.ckpt-41", 1, 1)
    save_theirs(path / "model.ckpt-42", 1, 1)
    latest = program("latest", path).split(" ", 1)
    assert latest == ["42", str(path / "model.ckpt-42") + "\n"], latest


@check
def we_read_many_blocks():
    """More names than one block of the index holds."""
    prefix = folder("many") / "ckpt"
    names = [f"a/long/name/of/a/variable/{i:05d}/kernel" for i in range(9000)]
    tf.raw_ops.SaveV2(
        prefix=str(prefix), tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[tf.constant(values(tf.float32, []))] * len(names))
    assert set(listed(prefix)) == set(names)


# ---- an Estimator's model_dir, and ours for an Estimator ----------------------

X = np.linspace(-1, 1, 32).reshape(8, 4).astype(np.float32)
Y = np.arange(8) % 3


def their_estimator(path, optimizer):
    """Two layers of v1 under the names that Hooke gives its own."""

    def model_fn(features, labels, mode):
        hidden = v1.layers.dense(features["x"], 5, tf.nn.relu, name="dense")
        logits = v1.layers.dense(hidden, 3, name="dense_1")
        loss = v1.losses.sparse_softmax_cross_entropy(labels, logits)
        step = v1.train.get_or_create_global_step()
        return v1.estimator.EstimatorSpec(
            mode, loss=loss,
            train_op=optimizer().minimize(loss, step)
            if mode == tf.estimator.ModeKeys.TRAIN else None)

    return v1.estimator.Estimator(
        model_fn, str(path), tf.estimator.RunConfig(tf_random_seed=3))


def whole_batch():
    return tf.data.Dataset.from_tensors(({"x": X}, Y)).repeat()


def our_experiment(path, optimizer):
    np.save(path / "x.npy", X)
    np.save(path / "y.npy", Y)
    experiment = path / "two.yaml"
    experiment.write_text(f"""
model:
  layers: [{{dense: {{units: 5, activation: relu}}}}, {{dense: 3}}]
optimizer: {optimizer}
data:
  holdout: 0
  train: {{source: npy, files: x.npy, labels: y.npy, batch: 8, shuffle: 0}}
""")
    return experiment


OPTIMIZERS = {
    "adam": ("{type: adam, learning_rate: 0.05}",
             lambda: v1.train.AdamOptimizer(0.05)),
    "momentum": ("{type: momentum, learning_rate: 0.05, momentum: 0.9}",
                 lambda: v1.train.MomentumOptimizer(0.05, 0.9)),
    "rmsprop": ("{type: rmsprop, learning_rate: 0.01, momentum: 0.5}",
                lambda: v1.train.RMSPropOptimizer(0.01, momentum=0.5)),
}


@check
def we_go_on_where_an_estimator_stopped():
    """Ten steps of theirs are five of theirs and five of ours."""
    for name, (ours, theirs) in OPTIMIZERS.items():
        path = folder(f"resume-{name}")
        estimator = their_estimator(path / "run", theirs)
        estimator.train(whole_batch, max_steps=5)
        shutil.copytree(path / "run", path / "ours")
        estimator.train(whole_batch, max_steps=10)
        hooke("train", our_experiment(path, ours), "--model-dir",
              path / "ours", "--steps", 10)
        (last,) = (path / "ours").glob("model.ckpt-10.safetensors")
        got = safetensors.numpy.load_file(last)
        for variable in estimator.get_variable_names():
            if variable.startswith("dense") and variable.count("/") == 1:
                np.testing.assert_allclose(
                    got[variable], estimator.get_variable_value(variable),
                    rtol=1e-4, atol=1e-5, err_msg=f"{name}: {variable}")


@check
def an_estimator_evaluates_ours():
    """By files of export and convert, and in a model_dir in TF's format."""
    path = folder("evaluate-ours")
    ours, theirs = OPTIMIZERS["adam"]
    experiment = our_experiment(path, ours)
    run = path / "run"
    hooke("train", experiment, "--model-dir", run, "--steps", 4)
    hooke("export", experiment, "--model-dir", run, "--format", "tf",
          "--output", path / "new" / "exported")
    hooke("convert", run, path / "converted")
    hooke("convert", run, path / "bare", "--model-only")
    estimator = their_estimator(path / "theirs", theirs)
    losses = []
    for file in ("new/exported", "converted", "bare"):
        got = estimator.evaluate(whole_batch, steps=1,
                                 checkpoint_path=str(path / file))
        assert got["global_step"] == 4, (file, got)
        losses.append(got["loss"])
    assert len(set(losses)) == 1 and losses[0] < 1.2, losses


@check
def types_survive_a_conversion():
    """Half, small integers and complex numbers, there and back."""
    path = folder("types")
    arrays = {"half": np.float16([0.5, -2]), "c64": np.complex64([1 + 2j]),
              "i8": np.int8([-128, 127]), "u16": np.uint16([65535]),
              "u64": np.uint64([2**64 - 1])}
    np.savez(path / "a.npz", **arrays)
    hooke("convert", path / "a.npz", path / "b", "--to", "tf")
    hooke("convert", path / "b", path / "c.safetensors")
    hooke("convert", path / "c.safetensors", path / "d.npz")
    reader = tf.train.load_checkpoint(str(path / "b"))
    with np.load(path / "d.npz") as back:
        for name, array in arrays.items():
            for got in (reader.get_tensor(name), back[name]):
                assert got.dtype == array.dtype, (name, got.dtype)
                np.testing.assert_array_equal(got, array)


@check
def tensorflow_learns_from_our_labels():
    """Classes of one byte from IDX files, as TFRecord."""
    path = folder("labels")
    (path / "x-idx3-ubyte").write_bytes(
        bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 1, 2, 3, 4]))
    (path / "y-idx1-ubyte").write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]))
    hooke("convert", path / "x-idx3-ubyte", path / "xy.tfrecord", "--labels",
          path / "y-idx1-ubyte")
    spec = {"image": tf.io.FixedLenFeature([], tf.string),
            "label": tf.io.FixedLenFeature([], tf.int64)}
    got = [tf.io.parse_single_example(record, spec)
           for record in tf.data.TFRecordDataset(str(path / "xy.tfrecord"))]
    assert [int(e["label"]) for e in got] == [7, 9], got
    pixels = [list(tf.io.decode_raw(e["image"], tf.uint8).numpy()) for e in got]
    assert pixels == [[1, 2], [3, 4]], pixels


# ---- safetensors --------------------------------------------------------------

ST_TYPES = {"F32": tf.float32, "F64": tf.float64, "BF16": tf.bfloat16,
            "I32": tf.int32, "I64": tf.int64, "U8": tf.uint8, "BOOL": tf.bool}


@check
def safetensors_reads_ours():
    path = folder("st-ours") / "model.safetensors"
    program("write", "safetensors", path, 1, 1)
    tensors = dict(safetensors.deserialize(path.read_bytes()))
    assert set(tensors) == set(TENSORS), set(tensors)
    for name, (dtype, shape) in TENSORS.items():
        t = tensors[name]
        assert ST_TYPES[t["dtype"]] == dtype, name
        got = np.frombuffer(t["data"], dtype.as_numpy_dtype)
        equal(got.reshape(t["shape"]), dtype, shape)
    # Mapped, tensor by tensor, as most programs do it.
    with safetensors.safe_open(path, framework="np") as f:
        for name, (dtype, shape) in TENSORS.items():
            if dtype != tf.bfloat16:
                equal(f.get_tensor(name), dtype, shape)


@check
def safetensors_reads_our_shards():
    path = folder("st-shards")
    program("write", "safetensors", path / "model.safetensors", 3, 1)
    (index,) = path.glob("*.index.json")
    weight_map = json.loads(index.read_text())["weight_map"]
    assert set(weight_map) == set(TENSORS), weight_map
    assert len(set(weight_map.values())) > 1, weight_map
    for name, file in weight_map.items():
        tensors = dict(safetensors.deserialize((path / file).read_bytes()))
        assert ST_TYPES[tensors[name]["dtype"]] == TENSORS[name][0], name


@check
def we_read_safetensors():
    path = folder("st-theirs") / "theirs.safetensors"
    arrays = {
        name: values(dtype, shape) for name, (dtype, shape) in THEIRS.items()
        if dtype not in (tf.bfloat16, tf.string)
    }
    safetensors.numpy.save_file(arrays, path, metadata={"a": "b"})
    got = listed(path)
    assert set(got) == set(arrays), got
    path = path.with_name("bf16.safetensors")
    safetensors.numpy.save_file({"x": values(tf.bfloat16, [4, 3])}, path)
    assert listed(path) == {"x": ("BF16", [4, 3])}


# ---- NumPy --------------------------------------------------------------------


@check
def numpy_reads_ours():
    path = folder("npz-ours") / "model.npz"
    program("write", "npz", path, 1, 1)
    with np.load(path) as got:
        for name, (dtype, shape) in TENSORS.items():
            if dtype != tf.bfloat16:
                equal(got[name], dtype, shape)


@check
def we_read_numpy():
    arrays = {
        re.sub("/", "_", name): values(dtype, shape)
        for name, (dtype, shape) in THEIRS.items()
        if dtype not in (tf.bfloat16, tf.string)
    }
    path = folder("npz-theirs")
    np.savez(path / "plain.npz", **arrays)
    np.savez_compressed(path / "packed.npz", **arrays)
    for file in ("plain.npz", "packed.npz"):
        got = listed(path / file)
        assert set(got) == set(arrays), set(got) ^ set(arrays)


# ---- event files --------------------------------------------------------------


def our_events(name):
    path = folder(name)
    program("events", path)
    return str(path)


@check
def tensorboard_reads_our_scalars():
    events = event_accumulator.EventAccumulator(our_events("ev-scalars"))
    events.Reload()
    got = events.Scalars("loss")
    assert [e.step for e in got] == list(range(5)), got
    assert [e.value for e in got] == list(values(tf.float32, [5])), got
    assert events.file_version == 2


@check
def tensorboard_reads_our_histograms():
    events = event_accumulator.EventAccumulator(
        our_events("ev-histograms"),
        size_guidance={event_accumulator.HISTOGRAMS: 0})
    events.Reload()
    (got,) = events.Histograms("weights")
    data = values(tf.float32, [1000]).astype(np.float64)
    h = got.histogram_value
    assert got.step == 7 and h.num == 1000
    assert h.min == data.min() and h.max == data.max()
    np.testing.assert_allclose([h.sum, h.sum_squares],
                               [data.sum(), (data * data).sum()], rtol=1e-12)
    # TensorFlow's own histogram of the same values.
    with tf.Graph().as_default(), v1.Session() as session:
        summary = v1.Summary.FromString(session.run(
            v1.summary.histogram("weights", data)))
    expected = summary.value[0].histo
    assert list(h.bucket_limit) == list(expected.bucket_limit)
    assert list(h.bucket) == list(expected.bucket)


@check
def tensorboard_reads_our_images():
    events = event_accumulator.EventAccumulator(our_events("ev-images"))
    events.Reload()
    (got,) = events.Images("picture")
    assert (got.step, got.height, got.width) == (8, 4, 5)
    pixels = tf.io.decode_png(got.encoded_image_string).numpy()
    equal(pixels, tf.uint8, [4, 5, 3])


@check
def tensorboard_reads_our_text():
    events = event_accumulator.EventAccumulator(our_events("ev-text"))
    events.Reload()
    (got,) = events.Tensors("plan")
    assert got.step == 9
    assert got.tensor_proto.string_val[0].decode() == "a **plan** of é"
    assert "plan" in events.PluginTagToContent("text")


def hparams_page(path):
    """Experiment and session groups by the plugin's own queries, as the
    browser would send them."""
    multiplexer = plugin_event_multiplexer.EventMultiplexer()
    multiplexer.AddRunsFromDirectory(path)
    multiplexer.Reload()
    provider = data_provider.MultiplexerDataProvider(multiplexer, path)
    context = backend_context.Context(
        base_plugin.TBContext(data_provider=provider))
    request = RequestContext()
    experiment = get_experiment.Handler(
        request, context, "", api_pb2.GetExperimentRequest()).run()
    query = api_pb2.ListSessionGroupsRequest(
        start_index=0, slice_size=10,
        allowed_statuses=[api_pb2.STATUS_SUCCESS])
    groups = list_session_groups.Handler(
        request, context, "", query).run().session_groups
    return experiment, groups


@check
def tensorboard_reads_our_hparams():
    experiment, groups = hparams_page(our_events("ev-hparams"))
    assert experiment.name == "sweep"
    assert sorted(x.name for x in experiment.hparam_infos) == [
        "batch_norm", "lr", "optimizer"], experiment
    assert len(groups) == 1, groups
    hparams = groups[0].hparams
    assert hparams["lr"].number_value == 0.25, hparams
    assert hparams["optimizer"].string_value == "sgd", hparams
    assert hparams["batch_norm"].bool_value, hparams
    assert groups[0].name == "trial-1", groups
    (metric,) = groups[0].metric_values
    assert metric.value == values(tf.float32, [5])[4], metric


@check
def tensorboard_shows_the_results_of_a_sweep():
    """Each trial with the metric of its evaluation, not of its training."""
    path = WORK / "sweep"
    hooke("sweep", "--grid", "optimizer.learning_rate=0.01,0.1", "--steps", 5,
          "--set", "data.eval.count=50", "--model-dir", path)
    sweep = json.loads((path / "sweep.json").read_text())
    losses = {t["optimizer.learning_rate"]: t["loss"] for t in sweep["trials"]}
    experiment, groups = hparams_page(str(path))
    (info,) = experiment.metric_infos
    assert (info.name.group, info.name.tag) == ("eval", "loss"), info
    assert len(groups) == 2, groups
    for group in groups:
        rate = group.hparams["optimizer.learning_rate"].number_value
        (metric,) = group.metric_values
        np.testing.assert_allclose(metric.value, losses[rate], rtol=1e-6)
        assert metric.training_step == 5, metric


@check
def tensorboards_data_server_reads_ours():
    """The separate program that the tensorboard command loads data with."""
    path = our_events("ev-server")
    ingester = server_ingester.SubprocessServerDataIngester(
        server_binary=server_ingester.get_server_binary(), logdir=path,
        reload_interval=0, channel_creds_type=grpc_util.ChannelCredsType.LOCAL)
    ingester.start()
    provider, request = ingester.data_provider, RequestContext()
    deadline = time.monotonic() + 60
    while True:  # until it has loaded
        got = provider.read_scalars(request, experiment_id=path,
                                    plugin_name="scalars", downsample=100)
        if got or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    (series,) = [tags["loss"] for tags in got.values()]
    assert [x.value for x in series] == list(values(tf.float32, [5])), series
    for plugin, tag in [("histograms", "weights"), ("text", "plan")]:
        listed_tags = provider.list_tensors(request, experiment_id=path,
                                            plugin_name=plugin)
        assert any(tag in tags for tags in listed_tags.values()), plugin
    images = provider.list_blob_sequences(request, experiment_id=path,
                                          plugin_name="images")
    assert any("picture" in tags for tags in images.values()), images


@check
def tensorflow_iterates_our_events():
    path = our_events("ev-iterator")
    (file,) = pathlib.Path(path).glob("events.*")
    events = [v1.Event.FromString(record.numpy())
              for record in tf.data.TFRecordDataset(str(file))]
    assert len(events) == 13, len(events)
    assert events[0].file_version == "brain.Event:2"
    (log,) = [e for e in events if e.HasField("session_log")]
    assert log.session_log.checkpoint_path == "model.ckpt-10"


def dumped(path):
    rows = []
    for line in program("dump", path).splitlines():
        head, scalar, text, size, count = line.split("|")
        kind, step, tag = head.split(" ", 2)
        rows.append((int(kind), int(step), tag, float(scalar), text,
                     int(size), float(count)))
    return rows


@check
def we_read_their_events_v1():
    path = folder("ev-v1")
    with tf.Graph().as_default(), v1.Session() as session:
        writer = v1.summary.FileWriter(str(path), session.graph)
        for step in range(3):
            writer.add_summary(session.run(
                v1.summary.scalar(f"s{step}", step * 0.5)), step)
        writer.add_summary(session.run(
            v1.summary.histogram("h", values(tf.float32, [100]))), 4)
        writer.add_summary(session.run(
            v1.summary.image("i", values(tf.uint8, [2, 3, 4, 1]))), 5)
        writer.add_session_log(v1.SessionLog(status=v1.SessionLog.START), 6)
        writer.close()
    rows = dumped(path)
    assert [r[3] for r in rows if r[0] == 2] == [0, 0.5, 1], rows
    (histogram,) = [r for r in rows if r[0] == 3]
    assert histogram[1:3] == (4, "h") and histogram[6] == 100, histogram
    images = [r for r in rows if r[0] == 4]
    assert [r[2] for r in images] == ["i/image/0", "i/image/1"], images
    assert {r[4] for r in images} == {"3x4x1"}, images
    (session_log,) = [r for r in rows if r[0] == 6]
    assert session_log[1] == 6 and session_log[3] == 1, session_log


@check
def we_read_their_events_v2():
    path = folder("ev-v2")
    with tf.summary.create_file_writer(str(path)).as_default():
        for step in range(3):
            tf.summary.scalar("s", step * 0.5, step=step)
        tf.summary.histogram("h", values(tf.float32, [100]), step=4)
        tf.summary.image("i", values(tf.uint8, [2, 3, 4, 1]), step=5)
        tf.summary.text("t", "some text", step=6)
        hp.hparams({"lr": 0.5})
    rows = dumped(path)
    assert [r[3] for r in rows if r[0] == 2] == [0, 0.5, 1], rows
    (histogram,) = [r for r in rows if r[0] == 3]
    assert histogram[1:3] == (4, "h") and histogram[6] == 100, histogram
    (image,) = [r for r in rows if r[0] == 4]
    assert image[4] == "3x4" and image[5] > 60, image
    (text,) = [r for r in rows if r[0] == 5]
    assert text[4] == "some text", text
    assert [r[2] for r in rows if r[0] == 7] == [
        "_hparams_/session_start_info"], rows


def main():
    failed = 0
    for function in CHECKS:
        try:
            function()
            print(f"interop: {function.__name__}: passed", flush=True)
        except Exception:  # pylint: disable=broad-except
            failed += 1
            traceback.print_exc()
            print(f"interop: {function.__name__}: FAILED", flush=True)
    print(f"interop: {len(CHECKS) - failed} passed, {failed} failed, "
          "0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
