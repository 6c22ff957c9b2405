"""Mirrors of the public headers; tools/make_ctypes.py wrote them."""
from __future__ import annotations

from ctypes import (POINTER, Structure, c_char, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_ubyte, c_uint32, c_uint64, c_uint8, c_void_p)
from typing import Any

HK_VERSION_MAJOR = 0
HK_VERSION_MINOR = 3
HK_VERSION_PATCH = 0
HK_MAX_RANK = 8
HK_BATCH = -1
HK_MAX_SLOTS = 3
HK_ELASTIC_BETA = 0.9
HK_ELASTIC_AUTO = -1.0e30
HK_KEY_BYTES = 32
HK_KEY_NAME = 32
HK_SET_NAME = 64
HK_SECTION = "hooke/"
HK_SECTION_EMA = "hooke/ema/"
HK_SECTION_CENTER = "hooke/center/"
HK_SECTION_WORKER = "hooke/worker/%u/"
HK_SECTION_RUN = "hooke/run/"

# hk_status
HK_OK = 0
HK_E_INVALID_ARG = 1
HK_E_NO_MEMORY = 2
HK_E_SHAPE = 3
HK_E_DTYPE = 4
HK_E_NOT_FOUND = 5
HK_E_EXISTS = 6
HK_E_OVERFLOW = 7
HK_E_RANGE = 8
HK_E_STATE = 9
HK_E_UNSUPPORTED = 10
HK_E_IO = 11
HK_E_DATA = 12
HK_E_END = 13
HK_E_TIMEOUT = 14
HK_E_CANCELLED = 15
HK_E_NOT_FINITE = 16
HK_E_BACKEND = 17
HK_E_UNAVAILABLE = 18
HK_E_DENIED = 19
HK_E_INTERNAL = 20

# hk_log_level
HK_LOG_DEBUG = 10
HK_LOG_INFO = 20
HK_LOG_WARNING = 30
HK_LOG_ERROR = 40

# hk_isa
HK_ISA_AUTO = 0
HK_ISA_BASE = 1
HK_ISA_V3 = 2
HK_ISA_V4 = 3

# hk_dtype
HK_F32 = 1
HK_F64 = 2
HK_BF16 = 3
HK_I32 = 4
HK_I64 = 5
HK_U8 = 6
HK_BOOL = 7
HK_STRING = 8

# hk_kind
HK_TRAINABLE = 1
HK_STATE_AVERAGE = 2
HK_STATE_COPY = 3
HK_STATE_LOCAL = 4

# hk_schedule_kind
HK_SCHEDULE_CONSTANT = 1
HK_SCHEDULE_EXPONENTIAL = 2
HK_SCHEDULE_PIECEWISE = 3
HK_SCHEDULE_POLYNOMIAL = 4
HK_SCHEDULE_NATURAL_EXP = 5
HK_SCHEDULE_INVERSE_TIME = 6
HK_SCHEDULE_COSINE = 7
HK_SCHEDULE_COSINE_RESTARTS = 8
HK_SCHEDULE_LINEAR_COSINE = 9
HK_SCHEDULE_NOISY_LINEAR_COSINE = 10

# hk_optimizer_kind
HK_OPT_GRADIENT_DESCENT = 1
HK_OPT_MOMENTUM = 2
HK_OPT_ADAGRAD = 3
HK_OPT_ADAGRAD_DA = 4
HK_OPT_ADADELTA = 5
HK_OPT_ADAM = 6
HK_OPT_ADAMW = 7
HK_OPT_AMSGRAD = 8
HK_OPT_LAZY_ADAM = 9
HK_OPT_RMSPROP = 10
HK_OPT_FTRL = 11
HK_OPT_PROXIMAL_GRADIENT_DESCENT = 12
HK_OPT_PROXIMAL_ADAGRAD = 13
HK_OPT_LARS = 14
HK_OPT_LAMB = 15
HK_OPT_LION = 16

# hk_sparse_update
HK_SPARSE_BY_KIND = 0
HK_SPARSE_TOUCHED_ROWS = 1
HK_SPARSE_ALL_ROWS = 2

# hk_method
HK_METHOD_ELASTIC = 1
HK_METHOD_ELASTIC_SYNC = 2
HK_METHOD_DOWNPOUR = 3
HK_METHOD_DOWNPOUR_AVERAGED = 4
HK_METHOD_DOWNPOUR_MOVING = 5
HK_METHOD_MODEL_AVERAGE = 6
HK_METHOD_LOCAL_SGD = 7
HK_METHOD_AGN = 8
HK_METHOD_DROP_STALE = 9
HK_METHOD_SLOWMO = 10
HK_METHOD_BMUF = 11
HK_METHOD_DILOCO = 12
HK_METHOD_DILOCO_ASYNC = 13
HK_METHOD_DILOCO_DELAYED = 14

# hk_share
HK_SHARE_BY_KIND = 0
HK_SHARE_EXCHANGE = 1
HK_SHARE_COPY = 2
HK_SHARE_LOCAL = 3

# hk_turn_order
HK_TURN_FREE = 0
HK_TURN_ROUND_ROBIN = 1
HK_TURN_RECORDED = 2

# hk_center_part
HK_CENTER_VALUES = 1
HK_CENTER_AVERAGE = 2

# hk_link
HK_LINK_MEMORY = 0
HK_LINK_MACHINE = 1
HK_LINK_NETWORK = 2

# hk_elastic_preset
HK_PRESET_TF = 0
HK_PRESET_PAPER = 1

# hk_exchange_order
HK_ORDER_BY_PRESET = 0
HK_ORDER_TF = 1
HK_ORDER_PAPER = 2

# hk_diff_coding
HK_COMPRESS_NONE = 0
HK_COMPRESS_BF16 = 1
HK_COMPRESS_INT8 = 2

# hk_refusal
HK_REFUSED_PREFACE = 0
HK_REFUSED_VERSION = 1
HK_REFUSED_KEY = 2
HK_REFUSED_FINGERPRINT = 3
HK_REFUSED_FRAME = 4
HK_REFUSED_REPLAY = 5
HK_REFUSED_FENCED = 6
HK_REFUSED_NOT_FINITE = 7
HK_REFUSED_NORM = 8
HK_REFUSED_FLOOD = 9
HK_REFUSED_SLOW = 10
HK_REFUSED_OTHER = 11
HK_REFUSALS = 12

# hk_ckpt_format
HK_CKPT_AUTO = 0
HK_CKPT_SAFETENSORS = 1
HK_CKPT_TF = 2
HK_CKPT_NPZ = 3
HK_CKPT_CENTER = 4


class hk_context_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("log", c_void_p),
        ("log_user", c_void_p),
        ("log_level", c_int),
        ("threads", c_uint32),
        ("isa", c_int),
        ("reserved", c_uint32),
    ]


class hk_context_info(Structure):
    _fields_ = [
        ("threads", c_uint32),
        ("isa", c_int),
        ("graph_builds", c_uint64),
        ("plan_compilations", c_uint64),
        ("plan_hits", c_uint64),
    ]


class hk_shape(Structure):
    _fields_ = [
        ("rank", c_int32),
        ("reserved", c_int32),
        ("dim", c_int64 * 8),
    ]


class hk_entry(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("shape", hk_shape),
        ("dtype", c_int),
        ("kind", c_int),
        ("sparse", c_uint32),
        ("reserved", c_uint32),
        ("offset", c_int64),
        ("count", c_int64),
    ]


class hk_layout_info(Structure):
    _fields_ = [
        ("n_dense", c_int64),
        ("n_train", c_int64),
        ("n", c_int64),
        ("side_bytes", c_int64),
        ("entry_count", c_size_t),
        ("fingerprint", c_uint64),
    ]


class hk_layout_item(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("shape", hk_shape),
        ("dtype", c_int),
        ("kind", c_int),
        ("sparse", c_uint32),
        ("reserved", c_uint32),
    ]


class hk_sparse_grad(Structure):
    _fields_ = [
        ("entry", POINTER(hk_entry)),
        ("count", c_int64),
        ("dim", c_int64),
        ("indices", POINTER(c_int64)),
        ("rows", POINTER(c_float)),
        ("unique", c_uint32),
        ("reserved", c_uint32),
    ]


class hk_named(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("dtype", c_int),
        ("reserved", c_uint32),
        ("shape", hk_shape),
        ("data", c_void_p),
    ]


class hk_schedule_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("learning_rate", c_double),
        ("decay_steps", c_double),
        ("decay_rate", c_double),
        ("end_learning_rate", c_double),
        ("power", c_double),
        ("alpha", c_double),
        ("beta", c_double),
        ("num_periods", c_double),
        ("t_mul", c_double),
        ("m_mul", c_double),
        ("initial_variance", c_double),
        ("variance_decay", c_double),
        ("seed", c_uint64),
        ("boundaries", POINTER(c_double)),
        ("values", POINTER(c_double)),
        ("n_boundaries", c_size_t),
        ("warmup_steps", c_double),
        ("warmup_start", c_double),
        ("kind", c_int),
        ("staircase", c_uint32),
        ("cycle", c_uint32),
        ("warmup_shift", c_uint32),
    ]


class hk_optimizer_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("learning_rate", c_double),
        ("momentum", c_double),
        ("beta1", c_double),
        ("beta2", c_double),
        ("epsilon", c_double),
        ("rho", c_double),
        ("initial_accumulator", c_double),
        ("l1", c_double),
        ("l2", c_double),
        ("l2_shrinkage", c_double),
        ("learning_rate_power", c_double),
        ("weight_decay", c_double),
        ("eeta", c_double),
        ("name", c_char_p),
        ("learning_rate_name", c_char_p),
        ("schedule", c_void_p),
        ("skip_list", POINTER(c_char_p)),
        ("n_skip", c_size_t),
        ("kind", c_int),
        ("sparse_update", c_int),
        ("use_nesterov", c_uint32),
        ("centered", c_uint32),
        ("paper_epsilon", c_uint32),
        ("threads", c_uint32),
        ("isa", c_int),
        ("lookahead", c_uint32),
        ("other", c_void_p),
        ("other_prefix", c_char_p),
        ("reserve_rows", c_int64),
        ("bf16_moments", c_uint32),
        ("reserved", c_uint32),
    ]


class hk_grad_view(Structure):
    _fields_ = [
        ("dense", POINTER(c_float)),
        ("n_dense", c_int64),
        ("sparse", POINTER(hk_sparse_grad)),
        ("n_sparse", c_size_t),
        ("scale", c_double),
        ("mask", POINTER(c_ubyte)),
    ]


class hk_optimizer_info(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("kind", c_int),
        ("slot_count", c_uint32),
        ("slots", c_char_p * 3),
    ]


class hk_center_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("context", c_void_p),
        ("name", c_char_p),
        ("outer", POINTER(hk_optimizer_options)),
        ("share", c_void_p),
        ("share_user", c_void_p),
        ("order", c_void_p),
        ("order_size", c_size_t),
        ("average_rate", c_double),
        ("activation", c_double),
        ("staleness", c_int64),
        ("method", c_int),
        ("turn", c_int),
        ("workers", c_uint32),
        ("max_workers", c_uint32),
        ("chunk_kib", c_uint32),
        ("record", c_uint32),
        ("quorum", c_uint32),
        ("delay", c_uint32),
        ("check", c_uint32),
        ("isa", c_int),
    ]


class hk_center_info(Structure):
    _fields_ = [
        ("version", c_uint64),
        ("exchanges", c_uint64),
        ("global_step", c_int64),
        ("skipped_chunks", c_uint64),
        ("stale", c_uint64),
        ("joins", c_uint64),
        ("live", c_uint32),
        ("initialised", c_uint32),
        ("method", c_int),
        ("turn", c_int),
        ("layout", c_void_p),
        ("shares", POINTER(c_int)),
    ]


class hk_worker_news(Structure):
    _fields_ = [
        ("local_step", c_int64),
        ("examples", c_double),
        ("per_second", c_double),
        ("loss", c_double),
        ("distance", c_double),
    ]


class hk_rates_ask(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("params", c_int64),
        ("step_gflop", c_double),
        ("workers", c_uint32),
        ("threads", c_uint32),
        ("link", c_int),
        ("on_card", c_uint32),
    ]


class hk_rates(Structure):
    _fields_ = [
        ("period", c_uint32),
        ("moving_rate", c_double),
        ("rate_scale", c_double),
        ("exposed", c_double),
        ("warmup_steps", c_int64),
    ]


class hk_elastic_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("context", c_void_p),
        ("name", c_char_p),
        ("moving_rate", c_double),
        ("rho", c_double),
        ("wait_ms", c_int64),
        ("num_worker", c_uint32),
        ("communication_period", c_uint32),
        ("use_locking", c_uint32),
        ("synchronous", c_uint32),
        ("method", c_int),
        ("preset", c_int),
        ("order", c_int),
        ("follow_live", c_uint32),
        ("overlap_steps", c_uint32),
        ("keep_view", c_uint32),
        ("telemetry", c_uint32),
        ("local_schedule", c_uint32),
        ("isa", c_int),
        ("reserved", c_uint32),
        ("side", c_void_p),
    ]


class hk_elastic_info(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("inner", c_void_p),
        ("center", c_void_p),
        ("view", POINTER(c_float)),
        ("local_step", c_int64),
        ("global_step", c_int64),
        ("worker", c_int32),
        ("incarnation", c_uint32),
    ]


class hk_swapping_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("vars", POINTER(c_char_p)),
        ("n_vars", c_size_t),
        ("step_name", c_char_p),
        ("x", POINTER(c_float)),
    ]


class hk_elastic_hook(Structure):
    _fields_ = [
        ("self", c_void_p),
        ("begin", c_void_p),
        ("after_create_session", c_void_p),
        ("end", c_void_p),
    ]


class hk_elastic_stats(Structure):
    _fields_ = [
        ("local_step", c_int64),
        ("global_step", c_int64),
        ("exchanges", c_uint64),
        ("dropped", c_uint64),
        ("skipped_chunks", c_uint64),
        ("moving_rate", c_double),
        ("staleness", c_double),
        ("staleness_mean", c_double),
        ("staleness_max", c_double),
        ("delay_steps", c_double),
        ("exchange_share", c_double),
        ("exchange_seconds", c_double),
        ("distance", c_double),
        ("cosine", c_double),
    ]


class hk_key(Structure):
    _fields_ = [
        ("name", c_char * 32),
        ("secret", c_ubyte * 32),
    ]


class hk_connect_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("context", c_void_p),
        ("name", c_char_p),
        ("addresses", POINTER(c_char_p)),
        ("n_addresses", c_size_t),
        ("key", POINTER(hk_key)),
        ("share", c_void_p),
        ("share_user", c_void_p),
        ("connect_ms", c_int64),
        ("retry_ms", c_int64),
        ("lost_ms", c_int64),
        ("compression", c_int),
        ("center_bf16", c_uint32),
        ("row_period", c_uint32),
        ("window_kib", c_uint32),
        ("insecure", c_uint32),
        ("observer", c_uint32),
    ]


class hk_link_info(Structure):
    _fields_ = [
        ("bytes_in", c_uint64),
        ("bytes_out", c_uint64),
        ("reconnects", c_uint64),
        ("missed", c_uint64),
        ("resent", c_uint64),
        ("row_exchanges", c_uint64),
        ("uncounted", c_uint64),
        ("away_seconds", c_double),
        ("reachable", c_uint32),
        ("finished", c_uint32),
    ]


class hk_worker_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("connect", POINTER(hk_connect_options)),
        ("moving_rate", c_double),
        ("wait_ms", c_int64),
        ("num_worker", c_uint32),
        ("task", c_int32),
    ]


class hk_center_server_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("context", c_void_p),
        ("name", c_char_p),
        ("addresses", POINTER(c_char_p)),
        ("n_addresses", c_size_t),
        ("key", POINTER(hk_key)),
        ("center", POINTER(hk_center_options)),
        ("layout", c_void_p),
        ("path", c_char_p),
        ("durability", c_char_p),
        ("shards", POINTER(c_char_p)),
        ("n_shards", c_size_t),
        ("shard", c_uint32),
        ("insecure", c_uint32),
        ("lease_ms", c_int64),
        ("hello_ms", c_int64),
        ("stall_ms", c_int64),
        ("wait_ms", c_int64),
        ("max_norm", c_double),
        ("max_bytes", c_uint64),
        ("max_connections", c_uint32),
        ("window_kib", c_uint32),
        ("reset_worker", c_int64),
    ]


class hk_server_info(Structure):
    _fields_ = [
        ("center", hk_center_info),
        ("run_id", c_uint64),
        ("n_values", c_int64),
        ("memory_bytes", c_int64),
        ("bytes_in", c_uint64),
        ("bytes_out", c_uint64),
        ("chunks", c_uint64),
        ("repeated", c_uint64),
        ("accepted", c_uint64),
        ("refused", c_uint64 * 12),
        ("snapshots", c_uint64),
        ("snapshot_seconds", c_double),
        ("snapshot_age", c_double),
        ("uptime", c_double),
        ("recovered", c_uint64),
        ("connections", c_uint32),
        ("workers", c_uint32),
        ("shard", c_uint32),
        ("n_shards", c_uint32),
        ("finished", c_uint32),
        ("reserved", c_uint32),
    ]


class hk_worker_info(Structure):
    _fields_ = [
        ("id", c_uint32),
        ("incarnation", c_uint32),
        ("live", c_uint32),
        ("connections", c_uint32),
        ("exchanges", c_uint64),
        ("bytes_in", c_uint64),
        ("bytes_out", c_uint64),
        ("repeated", c_uint64),
        ("refused", c_uint64),
        ("steps", c_int64),
        ("exchange_seconds", c_double),
        ("staleness", c_double),
        ("last_seen", c_double),
        ("report", hk_worker_news),
        ("peer", c_char * 128),
    ]


class hk_lent_set(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("fingerprint", c_uint64),
        ("seed", c_uint64),
        ("units", c_int64),
        ("epochs", c_int64),
        ("workers", c_uint32),
        ("reserved", c_uint32),
    ]


class hk_range(Structure):
    _fields_ = [
        ("id", c_uint64),
        ("epoch", c_int64),
        ("begin", c_int64),
        ("end", c_int64),
        ("used", c_int64),
    ]


class hk_meta(Structure):
    _fields_ = [
        ("key", c_char_p),
        ("value", c_char_p),
    ]


class hk_ckpt_entry(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("type_name", c_char_p),
        ("dtype", c_int),
        ("reserved", c_uint32),
        ("shape", hk_shape),
        ("bytes", c_uint64),
    ]


class hk_ckpt_info(Structure):
    _fields_ = [
        ("path", c_char_p),
        ("format", c_int),
        ("reserved", c_uint32),
        ("entry_count", c_size_t),
        ("meta", POINTER(hk_meta)),
        ("meta_count", c_size_t),
    ]


class hk_rename(Structure):
    _fields_ = [
        ("to", c_char_p),
        ("from", c_char_p),
    ]


class hk_restore_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("vars", c_char_p),
        ("names", POINTER(c_char_p)),
        ("n_names", c_size_t),
        ("rename", POINTER(hk_rename)),
        ("n_rename", c_size_t),
        ("allow_missing", c_uint32),
        ("allow_shape", c_uint32),
        ("reserved", c_uint32 * 2),
    ]


class hk_restore_report(Structure):
    _fields_ = [
        ("taken", c_size_t),
        ("left", c_size_t),
        ("missing", c_size_t),
        ("mismatched", c_size_t),
        ("text", c_char_p),
    ]


class hk_write_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("format", c_int),
        ("tf_shards", c_uint32),
        ("shard_bytes", c_uint64),
        ("meta", POINTER(hk_meta)),
        ("n_meta", c_size_t),
        ("rename", POINTER(hk_rename)),
        ("n_rename", c_size_t),
        ("tf_partitions", c_uint32),
        ("reserved", c_uint32),
    ]


class hk_copy_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("write", POINTER(hk_write_options)),
        ("name", c_void_p),
        ("user", c_void_p),
        ("more", c_void_p),
    ]


class hk_saver_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("context", c_void_p),
        ("model_dir", c_char_p),
        ("basename", c_char_p),
        ("format", c_int),
        ("keep_max", c_uint32),
        ("keep_every_n_hours", c_double),
        ("keep_best", c_uint32),
        ("best_is_max", c_uint32),
        ("background", c_uint32),
        ("no_fsync", c_uint32),
        ("shard_bytes", c_uint64),
    ]


class hk_saved(Structure):
    _fields_ = [
        ("path", c_char_p),
        ("step", c_int64),
        ("metric", c_double),
    ]


class hk_saver_info(Structure):
    _fields_ = [
        ("items", POINTER(hk_saved)),
        ("item_count", c_size_t),
        ("best", POINTER(hk_saved)),
    ]


# name: (result, arguments)
PROTOTYPES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "hk_status_string": (c_char_p, (c_int,)),
    "hk_last_error": (c_char_p, ()),
    "hk_version": (c_char_p, ()),
    "hk_context_options_init": (None, (POINTER(hk_context_options), c_size_t)),
    "hk_context_create": (c_int, (POINTER(hk_context_options), POINTER(c_void_p))),
    "hk_context_destroy": (None, (c_void_p,)),
    "hk_context_get_info": (None, (c_void_p, POINTER(hk_context_info))),
    "hk_request_stop": (None, (c_void_p, c_int)),
    "hk_stop_requested": (c_int, (c_void_p,)),
    "hk_set_allocator": (None, (c_void_p, c_void_p)),
    "hk_dtype_name": (c_char_p, (c_int,)),
    "hk_dtype_size": (c_size_t, (c_int,)),
    "hk_shape_make": (hk_shape, (c_int, POINTER(c_int64))),
    "hk_shape_equal": (c_int, (hk_shape, hk_shape)),
    "hk_shape_count": (c_int, (hk_shape, POINTER(c_int64))),
    "hk_tensor_create": (c_int, (c_int, hk_shape, POINTER(c_void_p))),
    "hk_tensor_wrap": (c_int, (c_int, hk_shape, c_void_p, POINTER(c_void_p))),
    "hk_tensor_retain": (c_void_p, (c_void_p,)),
    "hk_tensor_release": (None, (c_void_p,)),
    "hk_tensor_dtype": (c_int, (c_void_p,)),
    "hk_tensor_shape": (hk_shape, (c_void_p,)),
    "hk_tensor_count": (c_int64, (c_void_p,)),
    "hk_tensor_strides": (POINTER(c_int64), (c_void_p,)),
    "hk_tensor_is_contiguous": (c_int, (c_void_p,)),
    "hk_tensor_data": (c_void_p, (c_void_p,)),
    "hk_tensor_slice": (c_int, (c_void_p, c_int, c_int64, c_int64, POINTER(c_void_p))),
    "hk_tensor_transpose": (c_int, (c_void_p, POINTER(c_int), POINTER(c_void_p))),
    "hk_tensor_reshape": (c_int, (c_void_p, hk_shape, POINTER(c_void_p))),
    "hk_tensor_copy": (c_int, (c_void_p, c_int, POINTER(c_void_p))),
    "hk_tensor_set_string": (c_int, (c_void_p, c_int64, c_void_p, c_size_t)),
    "hk_tensor_get_string": (c_int, (c_void_p, c_int64, POINTER(c_void_p), POINTER(c_size_t))),
    "hk_layout_retain": (c_void_p, (c_void_p,)),
    "hk_layout_release": (None, (c_void_p,)),
    "hk_layout_get_info": (c_int, (c_void_p, POINTER(hk_layout_info))),
    "hk_layout_entry": (POINTER(hk_entry), (c_void_p, c_size_t)),
    "hk_layout_find": (POINTER(hk_entry), (c_void_p, c_char_p)),
    "hk_layout_create": (c_int, (POINTER(hk_layout_item), c_size_t, POINTER(c_void_p))),
    "hk_name_map_create": (c_int, (POINTER(c_void_p),)),
    "hk_name_map_destroy": (None, (c_void_p,)),
    "hk_name_map_add": (c_int, (c_void_p, POINTER(hk_named))),
    "hk_name_map_add_layout": (c_int, (c_void_p, c_void_p, POINTER(c_float), c_void_p)),
    "hk_name_map_count": (c_size_t, (c_void_p,)),
    "hk_name_map_item": (POINTER(hk_named), (c_void_p, c_size_t)),
    "hk_name_map_find": (POINTER(hk_named), (c_void_p, c_char_p)),
    "hk_schedule_options_init": (None, (POINTER(hk_schedule_options), c_size_t, c_int)),
    "hk_schedule_create": (c_int, (POINTER(hk_schedule_options), POINTER(c_void_p))),
    "hk_schedule_retain": (c_void_p, (c_void_p,)),
    "hk_schedule_release": (None, (c_void_p,)),
    "hk_schedule_value": (c_double, (c_void_p, c_double)),
    "hk_schedule_save": (c_int, (c_void_p, c_void_p, c_size_t, POINTER(c_size_t))),
    "hk_schedule_load": (c_int, (c_void_p, c_size_t, POINTER(c_void_p))),
    "hk_optimizer_options_init": (None, (POINTER(hk_optimizer_options), c_size_t, c_int)),
    "hk_optimizer_create": (c_int, (POINTER(hk_optimizer_options), c_void_p, POINTER(c_void_p))),
    "hk_optimizer_destroy": (None, (c_void_p,)),
    "hk_optimizer_apply": (c_int, (c_void_p, POINTER(c_float), POINTER(hk_grad_view), c_int64, c_void_p)),
    "hk_optimizer_look_ahead": (c_int, (c_void_p, POINTER(c_float), POINTER(c_float))),
    "hk_optimizer_select": (c_int, (c_void_p, POINTER(c_ubyte))),
    "hk_optimizer_begin": (c_int, (c_void_p, c_int64)),
    "hk_optimizer_apply_range": (c_int, (c_void_p, POINTER(c_float), POINTER(c_float), c_int64, c_int64, c_double)),
    "hk_optimizer_apply_sparse": (c_int, (c_void_p, POINTER(c_float), POINTER(hk_sparse_grad), c_double)),
    "hk_optimizer_end": (c_int, (c_void_p,)),
    "hk_optimizer_set": (c_int, (c_void_p, c_char_p, c_double)),
    "hk_optimizer_get": (c_int, (c_void_p, c_char_p, POINTER(c_double))),
    "hk_optimizer_set_schedule": (c_int, (c_void_p, c_void_p)),
    "hk_optimizer_rate": (c_double, (c_void_p, c_int64)),
    "hk_optimizer_get_info": (c_int, (c_void_p, POINTER(hk_optimizer_info))),
    "hk_optimizer_slot": (c_int, (c_void_p, c_char_p, c_char_p, POINTER(POINTER(c_float)))),
    "hk_optimizer_variables": (c_int, (c_void_p, c_void_p)),
    "hk_optimizer_save": (c_int, (c_void_p, c_void_p, c_size_t, POINTER(c_size_t))),
    "hk_optimizer_restore": (c_int, (c_void_p, c_void_p, c_size_t)),
    "hk_method_name": (c_char_p, (c_int,)),
    "hk_method_period": (c_uint32, (c_int,)),
    "hk_method_outer": (c_int, (c_int, c_uint32, POINTER(hk_optimizer_options))),
    "hk_method_find": (c_int, (c_char_p, POINTER(c_int))),
    "hk_center_options_init": (None, (POINTER(hk_center_options), c_size_t)),
    "hk_center_create_local": (c_int, (POINTER(hk_center_options), c_void_p, POINTER(c_void_p))),
    "hk_center_destroy": (None, (c_void_p,)),
    "hk_center_get_info": (c_int, (c_void_p, POINTER(hk_center_info))),
    "hk_center_snapshot": (c_int, (c_void_p, c_int, c_int64, POINTER(c_float), c_void_p, POINTER(hk_center_info))),
    "hk_center_assign": (c_int, (c_void_p, POINTER(c_float), c_void_p, c_int64, c_int64)),
    "hk_center_variables": (c_int, (c_void_p, c_void_p)),
    "hk_center_order_save": (c_int, (c_void_p, c_void_p, c_size_t, POINTER(c_size_t))),
    "hk_rates_ask_init": (None, (POINTER(hk_rates_ask), c_size_t)),
    "hk_rates_choose": (c_int, (POINTER(hk_rates_ask), POINTER(hk_rates))),
    "hk_rates_worker_count": (c_uint32, (c_uint32, c_double)),
    "hk_elastic_options_init": (None, (POINTER(hk_elastic_options), c_size_t)),
    "hk_elastic_create": (c_int, (POINTER(hk_elastic_options), c_void_p, c_void_p, POINTER(c_void_p))),
    "hk_elastic_destroy": (None, (c_void_p,)),
    "hk_elastic_init": (c_int, (c_void_p, POINTER(c_float), c_int32)),
    "hk_elastic_add_pull": (c_int, (c_void_p, POINTER(c_float), POINTER(c_float), c_int64, c_double)),
    "hk_elastic_apply": (c_int, (c_void_p, POINTER(c_float), POINTER(hk_grad_view), POINTER(c_int64))),
    "hk_elastic_stepped": (c_int, (c_void_p, POINTER(c_float), c_int64)),
    "hk_elastic_difference": (c_int, (c_void_p, POINTER(c_float), c_int64)),
    "hk_elastic_gradients": (c_int, (c_void_p, POINTER(hk_grad_view))),
    "hk_elastic_exchange": (c_int, (c_void_p, POINTER(c_float))),
    "hk_elastic_flush": (c_int, (c_void_p, POINTER(c_float))),
    "hk_elastic_leave": (c_int, (c_void_p, POINTER(c_float))),
    "hk_elastic_get_info": (c_int, (c_void_p, POINTER(hk_elastic_info))),
    "hk_elastic_set": (c_int, (c_void_p, c_char_p, c_double)),
    "hk_elastic_get": (c_int, (c_void_p, c_char_p, POINTER(c_double))),
    "hk_elastic_variables": (c_int, (c_void_p, c_void_p)),
    "hk_swapping_options_init": (None, (POINTER(hk_swapping_options), c_size_t)),
    "hk_elastic_swapping_map": (c_int, (c_void_p, POINTER(hk_swapping_options), POINTER(c_float), c_void_p, POINTER(c_int64), c_void_p)),
    "hk_elastic_make_hook": (c_int, (c_void_p, c_int, c_int32, POINTER(hk_elastic_hook))),
    "hk_elastic_get_stats": (c_int, (c_void_p, POINTER(hk_elastic_stats))),
    "hk_elastic_get_entry_stats": (c_int, (c_void_p, c_size_t, POINTER(c_double), POINTER(c_double))),
    "hk_key_generate": (c_int, (c_char_p, POINTER(hk_key))),
    "hk_key_save": (c_int, (POINTER(hk_key), c_char_p)),
    "hk_key_load": (c_int, (c_char_p, POINTER(hk_key))),
    "hk_connect_options_init": (None, (POINTER(hk_connect_options), c_size_t)),
    "hk_center_connect": (c_int, (POINTER(hk_connect_options), c_void_p, POINTER(c_void_p))),
    "hk_center_cancel": (c_int, (c_void_p,)),
    "hk_center_finish": (c_int, (c_void_p, c_char_p, c_int64)),
    "hk_center_get_link_info": (c_int, (c_void_p, POINTER(hk_link_info))),
    "hk_worker_options_init": (None, (POINTER(hk_worker_options), c_size_t)),
    "hk_worker_open": (c_int, (POINTER(hk_worker_options), POINTER(c_float), c_size_t, POINTER(c_void_p))),
    "hk_worker_exchange": (c_int, (c_void_p, POINTER(c_float), c_int64)),
    "hk_worker_elastic": (c_void_p, (c_void_p,)),
    "hk_worker_close": (None, (c_void_p,)),
    "hk_center_server_options_init": (None, (POINTER(hk_center_server_options), c_size_t)),
    "hk_center_server_start": (c_int, (POINTER(hk_center_server_options), POINTER(c_void_p))),
    "hk_center_file_of": (c_int, (c_char_p, c_uint32, c_uint32, c_char_p, c_size_t)),
    "hk_center_server_address": (c_char_p, (c_void_p, c_size_t)),
    "hk_center_server_wait": (c_int, (c_void_p, c_int64, POINTER(c_int))),
    "hk_center_server_stop": (None, (c_void_p,)),
    "hk_center_server_get_info": (c_int, (c_void_p, POINTER(hk_server_info))),
    "hk_center_server_worker": (c_int, (c_void_p, c_uint32, POINTER(hk_worker_info))),
    "hk_center_declare_set": (c_int, (c_void_p, c_int32, POINTER(hk_lent_set), c_int64, POINTER(c_uint32), POINTER(c_uint64))),
    "hk_center_take_range": (c_int, (c_void_p, c_int32, c_uint32, c_int64, POINTER(hk_range))),
    "hk_center_use_range": (c_int, (c_void_p, c_int32, c_uint64)),
    "hk_center_return_range": (c_int, (c_void_p, c_int32, c_uint64, c_int64, c_int64)),
    "hk_ckpt_open": (c_int, (c_char_p, c_int, POINTER(c_void_p))),
    "hk_ckpt_close": (None, (c_void_p,)),
    "hk_ckpt_get_info": (c_int, (c_void_p, POINTER(hk_ckpt_info))),
    "hk_ckpt_item": (POINTER(hk_ckpt_entry), (c_void_p, c_size_t)),
    "hk_ckpt_find": (POINTER(hk_ckpt_entry), (c_void_p, c_char_p)),
    "hk_ckpt_meta": (c_char_p, (c_void_p, c_char_p)),
    "hk_ckpt_read": (c_int, (c_void_p, c_char_p, c_int, POINTER(hk_shape), c_void_p)),
    "hk_ckpt_read_tensor": (c_int, (c_void_p, c_char_p, POINTER(c_void_p))),
    "hk_restore_options_init": (None, (POINTER(hk_restore_options), c_size_t)),
    "hk_ckpt_restore": (c_int, (c_void_p, c_void_p, POINTER(hk_restore_options), POINTER(hk_restore_report))),
    "hk_restore_report_deinit": (None, (POINTER(hk_restore_report),)),
    "hk_write_options_init": (None, (POINTER(hk_write_options), c_size_t)),
    "hk_ckpt_write": (c_int, (c_char_p, c_void_p, POINTER(hk_write_options))),
    "hk_copy_options_init": (None, (POINTER(hk_copy_options), c_size_t)),
    "hk_ckpt_copy": (c_int, (c_void_p, c_char_p, POINTER(hk_copy_options), POINTER(hk_restore_report))),
    "hk_saver_options_init": (None, (POINTER(hk_saver_options), c_size_t)),
    "hk_saver_create": (c_int, (POINTER(hk_saver_options), POINTER(c_void_p))),
    "hk_saver_destroy": (None, (c_void_p,)),
    "hk_saver_save": (c_int, (c_void_p, c_void_p, c_int64, POINTER(hk_meta), c_size_t)),
    "hk_saver_wait": (c_int, (c_void_p,)),
    "hk_saver_reserve": (c_int, (c_void_p, c_void_p)),
    "hk_saver_metric": (c_int, (c_void_p, c_int64, c_double)),
    "hk_saver_go_back": (c_int, (c_void_p, c_int64)),
    "hk_saver_get_info": (c_int, (c_void_p, POINTER(hk_saver_info))),
    "hk_saver_open_latest": (c_int, (c_void_p, POINTER(c_void_p), POINTER(c_int64))),
    "hk_saver_restore": (c_int, (c_void_p, c_void_p, POINTER(hk_restore_options), POINTER(hk_restore_report))),
    "hk_ckpt_open_latest": (c_int, (c_void_p, c_char_p, POINTER(c_void_p), POINTER(c_int64))),
    "hk_latest_checkpoint": (c_int, (c_char_p, c_char_p, c_size_t, POINTER(c_int64))),
    "hk_weights_open": (c_int, (c_char_p, POINTER(c_void_p))),
}
